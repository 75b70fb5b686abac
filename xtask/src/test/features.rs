//! Feature sets that crates are checked with.

use crate::process::{cargo, output};
use anyhow::Result;
use serde_json::Value;

/// A workspace package with a feature set.
pub(super) struct FeatureSet {
    pub(super) package: String,
    pub(super) features: String,
}

/// Each package without features, and with each feature alone.
///
/// The other tests cover all features together and the default features. Pairs would repeat most of
/// the work, because features are additive.
pub(super) fn sets() -> Result<Vec<FeatureSet>> {
    let metadata = output(cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: Value = serde_json::from_slice(&metadata)?;
    let mut sets = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let features = package["features"].as_object().into_iter().flatten();
        let features: Vec<&str> =
            features.map(|(name, _)| name.as_str()).filter(|name| *name != "default").collect();
        // A single feature equals `--all-features`.
        let alone = if features.len() > 1 { &features[..] } else { &[] };
        let none = (!features.is_empty()).then_some("");
        sets.extend(none.iter().chain(alone).map(|features| FeatureSet {
            package: name.to_owned(),
            features: (*features).to_owned(),
        }));
    }
    Ok(sets)
}

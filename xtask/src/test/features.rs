//! The sets of features that crates are checked with.

use crate::process::{cargo, output};
use anyhow::Result;
use serde_json::Value;

/// A package of the workspace with some of its features and no others.
pub(super) struct FeatureSet {
    pub(super) package: String,
    pub(super) features: String,
}

/// Each package without features and with each feature alone. All together, and the default ones,
/// are what the rest of the tests uses; pairs would repeat most of it, since features here add to
/// each other and none takes away.
pub(super) fn sets() -> Result<Vec<FeatureSet>> {
    let metadata = output(cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: Value = serde_json::from_slice(&metadata)?;
    let mut sets = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let features = package["features"].as_object().into_iter().flatten();
        let features: Vec<&str> =
            features.map(|(name, _)| name.as_str()).filter(|name| *name != "default").collect();
        // The only feature of all is what `--all-features` is.
        let alone = if features.len() > 1 { &features[..] } else { &[] };
        let none = (!features.is_empty()).then_some("");
        sets.extend(none.iter().chain(alone).map(|features| FeatureSet {
            package: name.to_owned(),
            features: (*features).to_owned(),
        }));
    }
    Ok(sets)
}

//! Not written yet.

use anyhow::Result;

#[derive(clap::Args)]
pub(crate) struct Options {}

pub(crate) fn run(_: &Options) -> Result<()> {
    anyhow::bail!("not implemented yet")
}

//! The files of a share of independent work (`--shard`).

use iopath_report::shard::Shard;
use std::path::{Path, PathBuf};

/// The name of a file of this share: its number in place of `{shard}`.
pub(crate) fn of_shard(file: &Path, shard: Option<Shard>) -> PathBuf {
    match (shard, file.to_str()) {
        (Some(shard), Some(name)) => name.replace("{shard}", &shard.number.to_string()).into(),
        _ => file.to_owned(),
    }
}

/// The arguments of the share, in which its number stands in place of `auto`: a later command that reads them has
/// another environment.
pub(crate) fn resolved(arguments: Vec<String>, shard: Option<Shard>) -> Vec<String> {
    let Some(Shard { number, count }) = shard else { return arguments };
    let option = format!("--shard={number}/{count}");
    let mut resolved = Vec::with_capacity(arguments.len());
    let mut words = arguments.into_iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--shard" => {
                words.next();
                resolved.push(option.clone());
            }
            name if name.starts_with("--shard=") => resolved.push(option.clone()),
            _ => resolved.push(word),
        }
    }
    resolved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_share_has_files_of_its_own() {
        let shard = "3/4".parse::<Shard>().ok();
        assert_eq!(of_shard(Path::new("part-{shard}.json"), shard), Path::new("part-3.json"));
        assert_eq!(of_shard(Path::new("all.json"), shard), Path::new("all.json"));
        assert_eq!(of_shard(Path::new("{shard}.json"), None), Path::new("{shard}.json"));
    }

    #[test]
    fn the_arguments_have_the_number_of_the_share() {
        let shard = "3/4".parse::<Shard>().ok();
        for arguments in
            [&["--bs", "4k", "--shard", "auto", "--quiet"][..], &["--bs", "4k", "--shard=auto", "--quiet"]]
        {
            let words: Vec<String> = arguments.iter().copied().map(str::to_owned).collect();
            assert_eq!(resolved(words.clone(), shard), ["--bs", "4k", "--shard=3/4", "--quiet"]);
            assert_eq!(resolved(words.clone(), None), words);
        }
    }
}

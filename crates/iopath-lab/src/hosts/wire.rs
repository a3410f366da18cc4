//! The measurements of a rank in one repetition as bytes: figures as JSON, and each histogram in its compact form,
//! which rank 0 keeps until it merges them. Does not send them.

use iopath_bench::peers::{PeerPart, PeerRepeat, PeerTransfers};
use serde::{Deserialize, Serialize};

/// The measurements of a rank in one repetition.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RankRepeat {
    pub(super) figures: Figures,
    /// The histograms of the transfers of all parts, in their order.
    pub(super) histograms: Vec<Vec<u8>>,
}

/// The figures without histograms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Figures {
    pub(super) number: u32,
    pub(super) cpu: Option<[f64; 3]>,
    pub(super) parts: Vec<PartFigures>,
}

/// The figures of a workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct PartFigures {
    pub(super) started: f64,
    pub(super) ended: f64,
    /// Bytes and number of all transfers; then, with several directions, of reads, writes and trims.
    pub(super) transfers: Vec<[u64; 2]>,
    /// The number of the histogram of the first of them.
    pub(super) histogram: usize,
}

/// The kinds of transfers of a part.
fn transfers(part: &PeerPart) -> impl Iterator<Item = &PeerTransfers> {
    std::iter::once(&part.all).chain(part.directions.iter().flatten())
}

/// The bytes of a repetition.
pub(super) fn encode(repeat: &PeerRepeat) -> Vec<u8> {
    let mut histograms: Vec<Vec<u8>> = Vec::new();
    let part = |part: &PeerPart| {
        let histogram = histograms.len();
        histograms.extend(transfers(part).map(|one| one.latency_ns.to_bytes()));
        let transfers = transfers(part).map(|one| [one.bytes, one.ios]).collect();
        PartFigures { started: part.started, ended: part.ended, transfers, histogram }
    };
    let parts = repeat.parts.iter().map(part).collect();
    let figures = Figures { number: repeat.number, cpu: repeat.cpu, parts };
    let figures = serde_json::to_vec(&figures).expect("JSON can represent all fields");
    let mut bytes = Vec::new();
    for piece in std::iter::once(&figures).chain(&histograms) {
        bytes.extend((piece.len() as u64).to_le_bytes());
        bytes.extend(piece);
    }
    bytes
}

/// The repetition of [`encode`]; none of other bytes. The histograms are checked when they are merged.
pub(super) fn decode(mut bytes: &[u8]) -> Option<RankRepeat> {
    let mut pieces = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk::<8>()?;
        let (piece, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
        pieces.push(piece.to_vec());
        bytes = rest;
    }
    let mut pieces = pieces.into_iter();
    let figures: Figures = serde_json::from_slice(&pieces.next()?).ok()?;
    let histograms: Vec<Vec<u8>> = pieces.collect();
    let mut expected = 0;
    for part in &figures.parts {
        if part.histogram != expected || !matches!(part.transfers.len(), 1 | 4) {
            return None;
        }
        expected += part.transfers.len();
    }
    (histograms.len() == expected).then_some(RankRepeat { figures, histograms })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::tests::transfers;

    #[test]
    fn a_repetition_survives_the_way_to_rank_0_and_other_bytes_are_refused() {
        let directions = Some([transfers(3), transfers(0), transfers(1)]);
        let parts = vec![
            PeerPart { started: 0.5, ended: 1.5, all: transfers(4), directions },
            PeerPart { started: 0.25, ended: 2.0, all: transfers(7), directions: None },
        ];
        let repeat = PeerRepeat { number: 2, cpu: Some([0.5, 0.25, 1.0]), parts };
        let bytes = encode(&repeat);
        let RankRepeat { figures, histograms } = decode(&bytes).unwrap();
        assert_eq!((figures.number, figures.cpu, histograms.len()), (2, repeat.cpu, 5));
        assert_eq!(figures.parts[1].transfers, [[7 * 4096, 7]]);
        assert_eq!(histograms[figures.parts[1].histogram], repeat.parts[1].all.latency_ns.to_bytes());
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end]), None, "{end}");
        }
        assert_eq!(decode(&[0xff; 20]), None);
    }
}

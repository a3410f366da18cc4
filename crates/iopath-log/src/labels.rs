//! The meaning of the numbers of a log: the device of a queue, the process of a stream, and the steps that the recorder
//! lost. A log of iopath's own queues needs no labels. The frames are in `format.rs`.

use crate::format::{labels_frame, labels_json};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The maximum length of the JSON of one frame.
pub(crate) const LABELS_BYTES_MAX: usize = 1 << 16;

/// The maximum number of labels of a kind in one frame.
const IN_FRAME_MAX: usize = 64;

/// Each text is truncated to this length, so that the escaped JSON of a frame fits into [`LABELS_BYTES_MAX`].
const TEXT_BYTES_MAX: usize = 64;

/// The maximum number of losses.
const LOSSES_MAX: usize = 4096;

/// The labels of a log, in the order of their numbers. Texts of a file are untrusted: print them through
/// [`Plain`](crate::Plain).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Labels {
    /// The devices.
    pub queues: Vec<QueueLabel>,
    /// The processes.
    pub streams: Vec<StreamLabel>,
    /// Events of the source that the recorder lost, by event and CPU.
    pub losses: Vec<Loss>,
    /// Accesses through `io_uring`, whose files and ranges are not in the log.
    #[serde(skip_serializing_if = "is_zero")]
    pub ring_requests: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The device of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct QueueLabel {
    /// The number of the queue.
    pub queue: u16,
    /// The name of the device, such as `sda`.
    pub name: String,
    /// Major and minor number, as in `8:0`; empty if unknown.
    pub number: String,
}

/// The process of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct StreamLabel {
    /// The number of the stream.
    pub stream: u16,
    /// The number of the process; none if unknown.
    pub pid: Option<u32>,
    /// The name of its command, without arguments.
    pub command: String,
    /// Whether the recorder started it: the recorded command, or a process that it started.
    pub is_own: bool,
}

/// Events of the source that are not in the log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Loss {
    /// The name of the event at the source.
    pub event: String,
    /// The CPU; none if unknown.
    pub cpu: Option<u32>,
    /// How many.
    pub lost: u64,
}

impl Labels {
    /// The label of a queue.
    pub fn queue(&self, number: u16) -> Option<&QueueLabel> {
        let index = self.queues.binary_search_by_key(&number, |label| label.queue).ok()?;
        self.queues.get(index)
    }

    /// The label of a stream.
    pub fn stream(&self, number: u32) -> Option<&StreamLabel> {
        let number = u16::try_from(number).ok()?;
        let index = self.streams.binary_search_by_key(&number, |label| label.stream).ok()?;
        self.streams.get(index)
    }

    /// The sum of all losses.
    pub fn lost(&self) -> u64 {
        self.losses.iter().fold(0, |sum: u64, loss| sum.saturating_add(loss.lost))
    }

    /// What the log lacks, in words.
    pub(crate) fn notes(&self) -> Vec<String> {
        let note = format!(
            "{} reads, writes and flushes were submitted through io_uring: their files and ranges are not recorded",
            self.ring_requests
        );
        (self.ring_requests > 0).then_some(note).into_iter().collect()
    }

    /// Adds the labels of a later frame. A later label of a number replaces the earlier one.
    pub fn merge(&mut self, later: Self) {
        fn place<T>(labels: &mut Vec<T>, label: T, number: impl Fn(&T) -> u16) {
            match labels.binary_search_by_key(&number(&label), &number) {
                Ok(index) => labels[index] = label,
                Err(index) => labels.insert(index, label),
            }
        }
        for mut label in later.queues {
            cut(&mut label.name);
            cut(&mut label.number);
            place(&mut self.queues, label, |label| label.queue);
        }
        for mut label in later.streams {
            cut(&mut label.command);
            place(&mut self.streams, label, |label| label.stream);
        }
        self.ring_requests = self.ring_requests.max(later.ring_requests);
        for mut loss in later.losses {
            cut(&mut loss.event);
            if self.losses.len() < LOSSES_MAX {
                self.losses.push(loss);
            }
        }
    }

    /// The labels that `earlier`, the labels of a part of the log, does not have.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let queues = self.queues.iter().filter(|label| earlier.queue(label.queue) != Some(label));
        let streams = self.streams.iter().filter(|label| earlier.stream(label.stream.into()) != Some(label));
        let ring_requests = if self.ring_requests == earlier.ring_requests { 0 } else { self.ring_requests };
        Self {
            queues: queues.cloned().collect(),
            streams: streams.cloned().collect(),
            losses: self.losses.iter().skip(earlier.losses.len()).cloned().collect(),
            ring_requests,
        }
    }

    /// The frames of these labels: none if there are no labels.
    pub(crate) fn to_frames(&self) -> Vec<Vec<u8>> {
        let mut rest = self.clone();
        let names = rest.queues.iter_mut().flat_map(|label| [&mut label.name, &mut label.number]);
        let commands = rest.streams.iter_mut().map(|label| &mut label.command);
        names.chain(commands).chain(rest.losses.iter_mut().map(|loss| &mut loss.event)).for_each(cut);
        let mut frames = Vec::new();
        while rest != Self::default() {
            let part = Self {
                queues: drain(&mut rest.queues),
                streams: drain(&mut rest.streams),
                losses: drain(&mut rest.losses),
                ring_requests: std::mem::take(&mut rest.ring_requests),
            };
            frames.push(labels_frame(&serde_json::to_vec(&part).expect("texts and numbers are always JSON")));
        }
        frames
    }

    /// The labels of a frame; `None` if it is damaged.
    pub(crate) fn parse(payload: &[u8]) -> Option<Self> {
        serde_json::from_slice(labels_json(payload)?).ok()
    }
}

impl fmt::Display for StreamLabel {
    /// The command and the number of the process.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.command.is_empty() { "unknown" } else { &self.command })?;
        self.pid.map_or(Ok(()), |pid| write!(f, " {pid}"))
    }
}

fn drain<T>(labels: &mut Vec<T>) -> Vec<T> {
    labels.drain(..labels.len().min(IN_FRAME_MAX)).collect()
}

fn cut(text: &mut String) {
    let end = (0..=text.len().min(TEXT_BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or(0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::FRAME_HEAD_BYTES;

    fn stream(number: u16, command: &str) -> StreamLabel {
        StreamLabel {
            stream: number,
            pid: Some(u32::from(number) + 1),
            command: command.to_owned(),
            is_own: false,
        }
    }

    #[test]
    fn labels_of_any_text_fit_into_frames_and_are_read_back() {
        let labels = Labels {
            queues: vec![QueueLabel { queue: 3, name: "\x1b".repeat(500), number: "8:0".to_owned() }],
            streams: (0..1000).map(|number| stream(number, &"\x1b".repeat(500))).collect(),
            losses: vec![Loss { event: "rq_issue".to_owned(), cpu: Some(1), lost: 7 }],
            ring_requests: 12,
        };
        let frames = labels.to_frames();
        let mut read = Labels::default();
        for frame in &frames {
            assert!(frame.len() <= LABELS_BYTES_MAX, "{} bytes", frame.len());
            read.merge(Labels::parse(&frame[FRAME_HEAD_BYTES..]).unwrap());
        }
        assert_eq!((read.streams.len(), read.lost(), read.ring_requests), (1000, 7, 12));
        assert!(read.notes()[0].starts_with("12 reads"), "{:?}", read.notes());
        assert_eq!(read.stream(999).unwrap().command.len(), TEXT_BYTES_MAX);
        assert_eq!(read.queue(3).unwrap().name.len(), TEXT_BYTES_MAX);
        assert!(Labels::default().to_frames().is_empty());
    }

    #[test]
    fn a_later_label_replaces_an_earlier_one_of_its_number() {
        let mut labels = Labels { streams: vec![stream(1, "sh"), stream(5, "fio")], ..Labels::default() };
        labels.merge(Labels { streams: vec![stream(5, "dd"), stream(3, "cp")], ..Labels::default() });
        let shown: Vec<_> = labels.streams.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["sh 2", "cp 4", "dd 6"]);
    }

    #[test]
    fn a_changed_byte_is_detected() {
        let frame = &Labels { streams: vec![stream(1, "sh")], ..Labels::default() }.to_frames()[0];
        for place in FRAME_HEAD_BYTES..frame.len() {
            let mut changed = frame.clone();
            changed[place] ^= 1;
            assert_eq!(Labels::parse(&changed[FRAME_HEAD_BYTES..]), None, "byte {place}");
        }
    }
}

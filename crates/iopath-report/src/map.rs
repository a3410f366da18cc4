//! The extents of a file and the requests of reads, `iopath.map/1`. Does not read files.

mod view;

use iopath_core::mapper::Boundary;
use serde::{Deserialize, Serialize};

use crate::result::{DiskFacts, Host};

/// The name and version of the JSON schema.
pub const SCHEMA: &str = "iopath.map/1";

/// The extents of a file and the requests of reads: the complete output of `--json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileMap {
    /// [`SCHEMA`].
    pub schema: String,
    /// The machine; none in maps of earlier versions.
    #[serde(default)]
    pub host: Option<Host>,
    /// The file, symbolic links resolved; bytes that are not UTF-8 are replaced.
    pub path: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The type of the filesystem.
    pub filesystem: Option<String>,
    /// The filesystem's block size, bytes.
    pub block_bytes: u32,
    /// `extents`, or `blocks` if the inode and indirect blocks point to single blocks.
    pub mapped_by: String,
    /// The disk beneath; none without a single disk.
    pub disk: Option<DiskFacts>,
    /// In order of offset, with holes between them.
    pub extents: Vec<MapExtent>,
    /// The limits of direct reads; none if direct I/O is refused.
    pub limits: Option<ReadLimits>,
    /// One for each block size.
    pub requests: Vec<Requests>,
    /// Warnings about the accuracy of the map.
    pub warnings: Vec<String>,
}

/// A range of a file that is contiguous on the device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MapExtent {
    /// Offset in the file, bytes.
    pub logical_bytes: u64,
    /// Offset on the filesystem's device, bytes; none if it is not known.
    pub physical_bytes: Option<u64>,
    /// Length, bytes. The last may reach beyond the end of the file.
    pub bytes: u64,
    /// Its flags, in words.
    pub flags: Vec<String>,
}

/// The limits of direct reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReadLimits {
    /// Offset and length are multiples of this number of bytes.
    pub align_bytes: u32,
    /// The largest request the kernel sends to the disk, bytes.
    pub request_bytes_max: u64,
    /// Requests do not cross multiples of this number of bytes on the disk; none if it has no such limit.
    pub chunk_bytes: Option<u64>,
    /// The most segments of a request; none if the disk does not state it.
    #[serde(default)]
    pub segments_max: Option<u32>,
    /// The size of a page of memory, bytes; 0 in maps of earlier versions.
    #[serde(default)]
    pub page_bytes: u32,
    /// The treatment of boundaries; none if the file has none.
    pub boundary: Option<BoundaryName>,
}

/// The treatment of boundaries, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum BoundaryName {
    /// Each block of a mapping before a boundary is a request.
    EveryBlock,
    /// A request ends at a boundary.
    Once,
    /// Boundaries have no effect.
    Ignore,
}

impl From<Boundary> for BoundaryName {
    fn from(boundary: Boundary) -> Self {
        match boundary {
            Boundary::EveryBlock => Self::EveryBlock,
            Boundary::Once => Self::Once,
            Boundary::Ignore => Self::Ignore,
        }
    }
}

impl FileMap {
    /// The map as indented JSON, with a newline at the end.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("JSON can represent all fields") + "\n"
    }

    /// The number of extents whose reads access the disk.
    pub fn written(&self) -> usize {
        let is_written = |extent: &&MapExtent| {
            extent.physical_bytes.is_some() && !extent.flags.iter().any(|flag| flag == "unwritten")
        };
        self.extents.iter().filter(is_written).count()
    }
}

/// The requests of sequential reads of one block size, from the start of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Requests {
    /// The size of each read, bytes.
    pub block_bytes: u64,
    /// The number of reads.
    pub reads: u64,
    /// Bytes of the file that the reads cover: all bytes, or those of the first four million reads.
    pub covered_bytes: u64,
    /// Requests at the disk, if the memory of each read is contiguous, as in huge pages.
    pub requests: u64,
    /// Requests if each page of the memory is a segment of its own: the most with ordinary memory. None without a known
    /// limit of segments.
    #[serde(default)]
    pub requests_of_pages: Option<u64>,
    /// Bytes of these requests.
    pub request_bytes: u64,
    /// The maximum number of requests per read.
    pub requests_of_a_read_max: u64,
    /// Bytes in holes and unwritten extents: zeroes without a request.
    pub zero_bytes: u64,
    /// Bytes whose requests are not counted: compressed, inline or without a known offset.
    pub other_bytes: u64,
    /// Indirect blocks that a reader without cached metadata reads in addition; 0 if extents map the file.
    pub metadata_requests: u64,
}

//! The kernel's type information (BTF): where the members of its structures are. The format is that of `linux/btf.h`.

use std::fs;
use std::io;

use super::error::TraceError;

/// The types of the running kernel.
const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

const MAGIC: u32 = 0xEB9F;

/// Kinds of types.
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_TYPEDEF: u32 = 8;
const KIND_VOLATILE: u32 = 9;
const KIND_CONST: u32 = 10;
const KIND_TYPE_TAG: u32 = 18;

/// The length of a type without the data of its kind, and of a member.
const TYPE_BYTES: usize = 12;
const MEMBER_BYTES: usize = 12;

/// Structures within structures are followed to this depth.
const DEPTH_MAX: usize = 8;

/// The types of a kernel.
pub(super) struct Btf {
    types: Vec<u8>,
    strings: Vec<u8>,
    /// The position of each type; type 0 is `void`.
    at: Vec<usize>,
}

/// A type without the data of its kind.
#[derive(Debug, Clone, Copy)]
struct Type {
    name: u32,
    kind: u32,
    members: usize,
    has_bit_fields: bool,
    /// The size, or the number of another type.
    other: u32,
}

impl Btf {
    /// Reads the types of the running kernel.
    pub(super) fn of_kernel() -> Result<Self, TraceError> {
        let no_types = |source| TraceError::NoTypes { path: VMLINUX, source };
        let bytes = fs::read(VMLINUX).map_err(no_types)?;
        Self::parse(&bytes).ok_or_else(|| no_types(io::ErrorKind::InvalidData.into()))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        // Another byte order has another magic number.
        if word(bytes, 0)? & 0xFFFF != MAGIC {
            return None;
        }
        let header = word(bytes, 4)? as usize;
        let part = |at: usize| {
            let start = header.checked_add(word(bytes, at)? as usize)?;
            bytes.get(start..start.checked_add(word(bytes, at + 4)? as usize)?)
        };
        let (types, strings) = (part(8)?.to_vec(), part(16)?.to_vec());
        let mut at = vec![usize::MAX];
        let mut position = 0;
        while position < types.len() {
            at.push(position);
            position += TYPE_BYTES + Type::read(&types, position)?.extra_bytes()?;
        }
        Some(Self { types, strings, at })
    }

    /// The offset in bytes of a member of a structure. A path such as `d_name.name` names a member of a member;
    /// members of unnamed structures and unions are found, too.
    pub(super) fn offset(&self, structure: &str, path: &str) -> Result<usize, TraceError> {
        let missing = || TraceError::NoMember { structure: structure.to_owned(), member: path.to_owned() };
        let (mut at, mut found) = self.structure(structure).ok_or_else(missing)?;
        let mut sum = 0;
        for (index, name) in path.split('.').enumerate() {
            if index > 0 {
                (at, found) = self.structure_of(found.other).ok_or_else(missing)?;
            }
            let (offset, member) = self.member(at, found, name, 0).ok_or_else(missing)?;
            sum += offset;
            found.other = member;
        }
        Ok(sum)
    }

    fn structure(&self, name: &str) -> Option<(usize, Type)> {
        let mut types = self.at.iter().skip(1).filter_map(|at| Some((*at, Type::read(&self.types, *at)?)));
        types.find(|(_, one)| one.kind == KIND_STRUCT && self.is_name(one.name, name))
    }

    /// The structure or union that a type is, or is another name for.
    fn structure_of(&self, mut number: u32) -> Option<(usize, Type)> {
        for _ in 0..DEPTH_MAX {
            let at = *self.at.get(number as usize)?;
            let found = Type::read(&self.types, at)?;
            match found.kind {
                KIND_STRUCT | KIND_UNION => return Some((at, found)),
                KIND_TYPEDEF | KIND_VOLATILE | KIND_CONST | KIND_TYPE_TAG => number = found.other,
                _ => return None,
            }
        }
        None
    }

    /// The offset of a member in bytes, and the number of its type.
    fn member(&self, at: usize, of: Type, name: &str, depth: usize) -> Option<(usize, u32)> {
        if depth == DEPTH_MAX {
            return None;
        }
        for index in 0..of.members {
            let place = at + TYPE_BYTES + index * MEMBER_BYTES;
            let member_name = word(&self.types, place)?;
            let number = word(&self.types, place + 4)?;
            let bits = word(&self.types, place + 8)?;
            let (bits, field_bits) =
                if of.has_bit_fields { (bits & 0xFF_FFFF, bits >> 24) } else { (bits, 0) };
            let offset = (bits / 8) as usize;
            if member_name == 0 {
                let inner = self.structure_of(number);
                let inner = inner.and_then(|(at, inner)| self.member(at, inner, name, depth + 1));
                if let Some((within, number)) = inner {
                    return Some((offset + within, number));
                }
            } else if field_bits == 0 && self.is_name(member_name, name) {
                return Some((offset, number));
            }
        }
        None
    }

    fn is_name(&self, offset: u32, name: &str) -> bool {
        let rest = self.strings.get(offset as usize..).and_then(|text| text.strip_prefix(name.as_bytes()));
        rest.is_some_and(|rest| rest.first() == Some(&0))
    }
}

impl Type {
    fn read(types: &[u8], at: usize) -> Option<Self> {
        let info = word(types, at + 4)?;
        Some(Self {
            name: word(types, at)?,
            kind: info >> 24 & 31,
            members: (info & 0xFFFF) as usize,
            has_bit_fields: info >> 31 == 1,
            other: word(types, at + 8)?,
        })
    }

    /// The length of the data that follows; `None` of an unknown kind.
    const fn extra_bytes(self) -> Option<usize> {
        Some(match self.kind {
            // Integers, variables and tags of declarations have a word; arrays three.
            1 | 14 | 17 => 4,
            3 => 12,
            KIND_STRUCT | KIND_UNION | 15 | 19 => self.members * MEMBER_BYTES,
            // Enumerations and parameters of functions.
            6 | 13 => self.members * 8,
            2 | 7..=12 | 16 | 18 => 0,
            _ => return None,
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct a { int x; struct { const b y; }; }` and `struct b { int p; int q; }`, as words.
    fn sample() -> Vec<u8> {
        let strings = b"\0a\0x\0b\0y\0p\0q\0int\0";
        let info = |kind: u32, members: u32| kind << 24 | members;
        let types: Vec<u32> = vec![
            13,
            info(1, 0),
            4,
            32, // 1: int
            1,
            info(KIND_STRUCT, 2),
            16,
            3,
            1,
            0,
            0,
            3,
            64, // 2: a
            0,
            info(KIND_STRUCT, 1),
            8,
            7,
            4,
            0, // 3: the unnamed structure
            0,
            info(KIND_CONST, 0),
            5, // 4: const b
            5,
            info(KIND_STRUCT, 2),
            8,
            9,
            1,
            0,
            11,
            1,
            32, // 5: b
        ];
        let types: Vec<u8> = types.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let header = [MAGIC | 1 << 16, 24, 0, types.len() as u32, types.len() as u32, strings.len() as u32];
        let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.extend(types);
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn members_are_found_in_unnamed_and_named_structures() {
        let btf = Btf::parse(&sample()).unwrap();
        assert_eq!(btf.offset("a", "x").unwrap(), 0);
        assert_eq!(btf.offset("a", "y").unwrap(), 8);
        assert_eq!(btf.offset("a", "y.q").unwrap(), 12);
        let error = btf.offset("a", "y.z").unwrap_err().to_string();
        assert!(error.contains("`a`") && error.contains("y.z"), "{error}");
        assert!(btf.offset("c", "x").is_err());
    }

    #[test]
    fn broken_types_are_no_types() {
        let bytes = sample();
        for len in 0..bytes.len() {
            assert!(Btf::parse(&bytes[..len]).is_none(), "{len} bytes");
        }
        let mut unknown = bytes;
        unknown[24 + 7] = 31;
        assert!(Btf::parse(&unknown).is_none());
    }
}

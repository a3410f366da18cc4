//! Both ends of the protocol, joined in memory: each format, each command, messages cut at each byte.

use iopath_nbd::{
    BlockExtent, BlockSizes, BlockState, ClientError, ClientEvent, ClientOperation, ClientOptions,
    ClientProgress, ClientTls, EXPORT_NAME_MAX, Errno, Export, HandshakeError, ReplyFormat, ServerProgress,
    ServerTls, SubmitError, TransmissionFlags,
};
use proptest::prelude::*;

use crate::pair::{Pair, greet, writable_export};

#[test]
fn a_client_gets_the_size_the_block_sizes_and_the_best_format() {
    for format in [ReplyFormat::Simple, ReplyFormat::Structured, ReplyFormat::Extended] {
        let options = ClientOptions { format, ..ClientOptions::export("disk") };
        let (server, client) = greet(&[writable_export()], ServerTls::Off, options, usize::MAX).unwrap();
        assert_eq!((server.format, client.format), (format, format));
        assert_eq!(client.size, writable_export().size);
        assert_eq!(client.block_sizes, writable_export().block_sizes);
        assert!(client.has_block_sizes);
        assert_eq!(client.flags, server.flags);
        assert_eq!(client.flags.contains(TransmissionFlags::SEND_DF), format != ReplyFormat::Simple);
        assert_eq!(client.allocation.is_some(), format != ReplyFormat::Simple);
        assert_eq!(server.has_allocation, client.allocation.is_some());
    }
}

#[test]
fn a_negotiation_does_not_depend_on_the_size_of_the_parts_that_arrive() {
    let whole =
        greet(&[writable_export()], ServerTls::Off, ClientOptions::export("disk"), usize::MAX).unwrap();
    for part in [1, 2, 3, 7, 19, 64] {
        let parts = greet(&[writable_export()], ServerTls::Off, ClientOptions::export("disk"), part).unwrap();
        assert_eq!(parts, whole);
    }
}

#[test]
fn the_empty_name_selects_the_first_export_and_an_unknown_name_is_refused() {
    let exports = [writable_export(), Export::new("other", 512)];
    let (server, _) = greet(&exports, ServerTls::Off, ClientOptions::export(""), usize::MAX).unwrap();
    assert_eq!(server.export, 0);
    let (server, client) =
        greet(&exports, ServerTls::Off, ClientOptions::export("other"), usize::MAX).unwrap();
    assert_eq!((server.export, client.size), (1, 512));
    let error = greet(&exports, ServerTls::Off, ClientOptions::export("none"), usize::MAX).unwrap_err();
    assert!(
        matches!(&error, ClientError::Refused { option: "GO", reason } if reason == "no export has this name"),
        "{error}"
    );
}

#[test]
fn the_longest_names_are_listed_and_found() {
    let name = |last: char| "n".repeat(EXPORT_NAME_MAX - 1) + &last.to_string();
    let exports = [Export::new(name('a'), 512), Export::new(name('b'), 1024)];
    let (server, client) =
        greet(&exports, ServerTls::Off, ClientOptions::export(name('b')), usize::MAX).unwrap();
    assert_eq!((server.export, client.size), (1, 1024));
    let mut pair = Pair::new(&exports, ServerTls::Off, ClientOptions::list(), usize::MAX);
    let ClientProgress::Listed(listed) = pair.negotiate().unwrap() else { panic!("not a list") };
    assert!(listed.into_iter().map(|(name, _)| name).eq([name('a'), name('b')]));
}

#[test]
fn a_list_has_every_name() {
    let exports: Vec<_> = (0..100).map(|index| Export::new(format!("disk{index}"), 1)).collect();
    let mut pair = Pair::new(&exports, ServerTls::Off, ClientOptions::list(), usize::MAX);
    let ClientProgress::Listed(listed) = pair.negotiate().unwrap() else { panic!("not a list") };
    let names: Vec<_> = listed.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, exports.iter().map(|export| export.name.clone()).collect::<Vec<_>>());
    assert_eq!(pair.server_progress, Some(ServerProgress::Disconnect));
}

#[test]
fn tls_is_required_refused_or_started() {
    let exports = [writable_export()];
    let plain = || ClientOptions::export("disk");
    let tls = || ClientOptions { tls: ClientTls::Required, ..plain() };
    assert_eq!(
        greet(&exports, ServerTls::Required, plain(), usize::MAX).unwrap_err(),
        ClientError::TlsRequired
    );
    assert_eq!(greet(&exports, ServerTls::Off, tls(), usize::MAX).unwrap_err(), ClientError::NoTls);
    for server in [ServerTls::Offered, ServerTls::Required] {
        let mut pair = Pair::new(&exports, server, tls(), usize::MAX);
        assert_eq!(pair.negotiate().unwrap(), ClientProgress::StartTls);
        assert_eq!(pair.server_progress, Some(ServerProgress::StartTls));
        pair.start_tls();
        assert!(matches!(pair.negotiate().unwrap(), ClientProgress::Transmission(_)));
    }
}

#[test]
fn bytes_after_the_request_for_tls_end_the_connection() {
    let mut pair =
        Pair::new(&[writable_export()], ServerTls::Offered, ClientOptions::export("disk"), usize::MAX);
    let mut input =
        [0u32.to_be_bytes().as_slice(), b"IHAVEOPT", &5u32.to_be_bytes(), &0u32.to_be_bytes(), b"x"].concat();
    let error = pair.server.handle_input(&mut input).unwrap_err();
    assert_eq!(error, HandshakeError::InputBeforeTls(1));
    assert_eq!(pair.server.handle_input(&mut input).unwrap_err(), HandshakeError::Ended);
}

#[test]
fn too_long_options_are_skipped_and_refused_and_the_connection_goes_on() {
    let mut pair = Pair::new(&[writable_export()], ServerTls::Off, ClientOptions::export("disk"), usize::MAX);
    let length = 100_000u32;
    let mut input =
        [3u32.to_be_bytes().as_slice(), b"IHAVEOPT", &6u32.to_be_bytes(), &length.to_be_bytes()].concat();
    input.extend(vec![0; length as usize]);
    input.extend([b"IHAVEOPT".as_slice(), &2u32.to_be_bytes(), &0u32.to_be_bytes()].concat());
    for part in input.chunks(4096) {
        let progress = pair.server.handle_input(&mut part.to_vec()).unwrap();
        if progress == ServerProgress::Disconnect {
            return;
        }
        assert_eq!(progress, ServerProgress::NeedInput);
    }
    panic!("the option after the long one was not handled");
}

#[test]
fn endless_options_end_the_connection_with_bounded_output() {
    let exports: Vec<_> = (0..100).map(|index| Export::new(format!("{index:0>1000}"), 1)).collect();
    let mut pair = Pair::new(&exports, ServerTls::Off, ClientOptions::export("disk"), usize::MAX);
    let list = [b"IHAVEOPT".as_slice(), &3u32.to_be_bytes(), &0u32.to_be_bytes()].concat();
    let mut input = [3u32.to_be_bytes().as_slice(), &list.repeat(1000)].concat();
    loop {
        match pair.server.handle_input(&mut input) {
            Ok(progress) => assert_eq!(progress, ServerProgress::SendOutput),
            Err(error) => return assert_eq!(error, HandshakeError::TooManyOptions),
        }
        assert!(pair.server.take_output().len() < 300_000);
    }
}

/// Reads `bytes`, and expects them.
fn assert_reads(pair: &mut Pair, offset: u64, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap();
    assert_eq!(pair.execute(ClientOperation::Read { offset, length }, &[]), Ok(()));
    assert_eq!(pair.memory, bytes);
}

#[test]
fn every_command_reaches_the_disk_and_its_reply_the_client() {
    for format in [ReplyFormat::Simple, ReplyFormat::Structured, ReplyFormat::Extended] {
        let options = ClientOptions { format, ..ClientOptions::export("disk") };
        let mut pair = Pair::new(&[writable_export()], ServerTls::Off, options, usize::MAX);
        pair.start();
        let data: Vec<u8> = (0..=255).collect();
        assert_eq!(
            pair.execute(ClientOperation::Write { offset: 100, length: 256, fua: true }, &data),
            Ok(())
        );
        assert_reads(&mut pair, 100, &data);
        let zeroes = ClientOperation::WriteZeroes { offset: 101, length: 10, fua: false, no_hole: true };
        assert_eq!(pair.execute(zeroes, &[]), Ok(()));
        assert_reads(&mut pair, 100, &[&data[..1], &[0; 10], &data[11..]].concat());
        assert_eq!(pair.execute(ClientOperation::Trim { offset: 0, length: 4096, fua: false }, &[]), Ok(()));
        assert_eq!(pair.execute(ClientOperation::Flush, &[]), Ok(()));
        pair.fail_next = Some(Errno::IO);
        assert_eq!(pair.execute(ClientOperation::Read { offset: 0, length: 5 }, &[]), Err(Errno::IO));
        assert_reads(&mut pair, 0, &[0; 5]);
        let status = pair.submit(ClientOperation::BlockStatus { offset: 512, length: 4096 }, &[]);
        assert_eq!(status.is_err(), format == ReplyFormat::Simple);
        if status.is_ok() {
            pair.exchange();
            let hole = BlockExtent { length: 4096, state: BlockState::HOLE | BlockState::ZERO };
            assert!(
                matches!(&pair.events[..], [ClientEvent::Extents { extents, .. }, ClientEvent::Completed { result: Ok(()), .. }] if extents == &[hole])
            );
        }
    }
}

#[test]
fn a_client_refuses_a_request_that_the_server_would_refuse() {
    let export = Export {
        block_sizes: BlockSizes { min: 512, preferred: 4096, max: 1 << 20 },
        ..Export::new("disk", 4096 + 100)
    };
    let mut pair = Pair::new(&[export], ServerTls::Off, ClientOptions::export("disk"), usize::MAX);
    pair.start();
    let mut refused = |operation| pair.submit(operation, &[]).unwrap_err();
    assert!(matches!(
        refused(ClientOperation::Write { offset: 0, length: 512, fua: false }),
        SubmitError::NotOffered(_)
    ));
    assert!(matches!(refused(ClientOperation::Flush), SubmitError::NotOffered(_)));
    assert!(matches!(
        refused(ClientOperation::Read { offset: 1, length: 512 }),
        SubmitError::Unaligned { .. }
    ));
    assert!(matches!(
        refused(ClientOperation::Read { offset: 0, length: 100 }),
        SubmitError::Unaligned { .. }
    ));
    assert!(matches!(
        refused(ClientOperation::Read { offset: 4096, length: 101 }),
        SubmitError::Range { .. }
    ));
    assert!(matches!(
        refused(ClientOperation::Read { offset: u64::MAX, length: 2 }),
        SubmitError::Range { .. }
    ));
    assert!(matches!(refused(ClientOperation::Read { offset: 0, length: 0 }), SubmitError::Range { .. }));
    assert_eq!(pair.execute(ClientOperation::Read { offset: 4096, length: 100 }, &[]), Ok(()));
}

#[test]
fn requests_that_a_client_should_not_send_get_an_error_and_the_connection_goes_on() {
    let mut pair =
        Pair::new(&[Export::new("disk", 4096)], ServerTls::Off, ClientOptions::export("disk"), usize::MAX);
    pair.start();
    pair.skip_checks_of_client();
    for operation in [
        ClientOperation::Write { offset: 0, length: 5, fua: false },
        ClientOperation::Read { offset: 4000, length: 97 },
        ClientOperation::Read { offset: u64::MAX - 97, length: 97 },
        ClientOperation::Flush,
        ClientOperation::BlockStatus { offset: 0, length: 1 },
    ] {
        let data = if let ClientOperation::Write { length, .. } = operation {
            vec![1; length as usize]
        } else {
            vec![]
        };
        assert!(pair.execute(operation, &data).is_err(), "{operation:?}");
        assert_eq!(pair.execute(ClientOperation::Read { offset: 0, length: 9 }, &[]), Ok(()));
    }
}

fn operation() -> impl Strategy<Value = (ClientOperation, bool)> {
    let range = (0u64..8000, 1u32..192);
    let operation = (0..5, range, any::<bool>()).prop_map(|(kind, (offset, length), fua)| match kind {
        0 | 1 => ClientOperation::Read { offset, length },
        2 => ClientOperation::Write { offset, length, fua },
        3 => ClientOperation::WriteZeroes { offset, length: length.into(), fua, no_hole: false },
        _ => ClientOperation::Flush,
    });
    (operation, any::<bool>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Random requests, several in flight, replies out of order and in chunks, parts of any size: each read returns the
    /// bytes of the disk.
    #[test]
    fn random_requests_read_what_was_written(
        format in prop_oneof![Just(ReplyFormat::Simple), Just(ReplyFormat::Structured), Just(ReplyFormat::Extended)],
        operations in prop::collection::vec(operation(), 1..24),
        part in 1usize..200,
        seed: u64,
    ) {
        let options = ClientOptions { format, ..ClientOptions::export("disk") };
        let mut pair = Pair::new(&[writable_export()], ServerTls::Off, options, part);
        pair.start();
        pair.seed = seed;
        let mut model = vec![0; pair.disk.len()];
        for (operation, is_in_chunks) in operations {
            pair.in_chunks = is_in_chunks;
            let (offset, length) = operation.range();
            let range = offset as usize..(offset + length) as usize;
            let data: Vec<u8> = (0..length).map(|byte| (byte as u8) ^ (seed as u8) | 1).collect();
            let is_write = matches!(operation, ClientOperation::Write { .. });
            prop_assert_eq!(pair.execute(operation, if is_write { &data } else { &[] }), Ok(()));
            match operation {
                ClientOperation::Write { .. } => model[range].copy_from_slice(&data),
                ClientOperation::WriteZeroes { .. } => model[range].fill(0),
                ClientOperation::Read { .. } => prop_assert_eq!(&pair.memory, &model[range]),
                _ => {}
            }
        }
        prop_assert_eq!(&pair.disk, &model);
    }
}

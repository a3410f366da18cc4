//! Peers that violate the protocol: arbitrary bytes, mutated sessions, invented replies. Neither end may panic, loop or
//! allocate memory for an announced length.

use std::sync::Arc;

use iopath_nbd::{
    BlockSizes, ClientError, ClientHandshake, ClientOperation, ClientOptions, ClientRequests, Expected,
    Negotiated, ReplyFormat, ServerHandshake, ServerProgress, ServerRequests, ServerTls, TransmissionFlags,
};
use proptest::prelude::*;

use crate::pair::writable_export;

fn negotiated(format: ReplyFormat) -> Negotiated {
    let block_sizes = BlockSizes::default();
    let flags = TransmissionFlags::HAS_FLAGS;
    Negotiated { size: 1 << 20, flags, block_sizes, has_block_sizes: true, format, allocation: Some(1) }
}

/// A client with one read of 100 bytes at 4096 in flight, and the cookie of that read.
fn reading(format: ReplyFormat) -> (ClientRequests, u64) {
    let mut client = ClientRequests::new(negotiated(format), 2);
    let head = client.submit(ClientOperation::Read { offset: 4096, length: 100 }, 1).unwrap();
    (client, u64::from_be_bytes(head[8..16].try_into().unwrap()))
}

fn chunk(flags: u16, kind: u16, cookie: u64, payload: &[u8]) -> Vec<u8> {
    let mut chunk = 0x668e_33efu32.to_be_bytes().to_vec();
    chunk.extend(flags.to_be_bytes());
    chunk.extend(kind.to_be_bytes());
    chunk.extend(cookie.to_be_bytes());
    chunk.extend((payload.len() as u32).to_be_bytes());
    chunk.extend(payload);
    chunk
}

/// Passes `input` to a client, data included. The result is the first error.
fn feed(client: &mut ClientRequests, mut input: &[u8]) -> Result<(), ClientError> {
    while !input.is_empty() {
        match client.expected() {
            Expected::Control => {
                let used = client.handle_input(input)?;
                if used == 0 {
                    return Ok(());
                }
                input = &input[used..];
            }
            Expected::Data { length, .. } => {
                let count = (length as usize).min(input.len());
                client.handle_data(count as u32)?;
                input = &input[count..];
            }
        }
        while client.poll_event().is_some() {}
    }
    Ok(())
}

/// Flags, type and payload.
type Chunk = (u16, u16, Vec<u8>);

#[test]
fn a_client_refuses_replies_that_contradict_its_request() {
    let at = |offset: u64, bytes: usize| [offset.to_be_bytes().as_slice(), &vec![0; bytes]].concat();
    let data = |offset: u64, bytes: usize| (0, 1, at(offset, bytes));
    let hole =
        |offset: u64, length: u32| (0, 2, [offset.to_be_bytes().as_slice(), &length.to_be_bytes()].concat());
    let done = || (1, 0, vec![]);
    let refused: &[(&str, Vec<Chunk>)] = &[
        ("before the range", vec![data(4095, 2)]),
        ("after the range", vec![data(4190, 11)]),
        ("far away", vec![data(u64::MAX, 1)]),
        ("twice", vec![data(4096, 50), data(4140, 20)]),
        ("a hole over data", vec![data(4096, 50), hole(4096, 50)]),
        ("no byte", vec![data(4096, 0)]),
        ("a hole without a length", vec![hole(4096, 0)]),
        ("a chunk without an offset", vec![(0, 1, vec![0; 7])]),
        ("too little data", vec![data(4096, 99), done()]),
        ("no data", vec![done()]),
        ("no chunk with a payload", vec![(1, 0, vec![1])]),
        ("none before the end", vec![(0, 0, vec![])]),
        ("an unknown type", vec![(0, 77, vec![])]),
        ("a block status", vec![(1, 5, vec![0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0])]),
        ("an error without a code", vec![(1, 0x8001, vec![0; 6])]),
        ("an error with a text that is too long", vec![(1, 0x8001, vec![0, 0, 0, 5, 0, 9, b'x'])]),
    ];
    for (name, chunks) in refused {
        let (mut client, cookie) = reading(ReplyFormat::Structured);
        let input: Vec<u8> =
            chunks.iter().flat_map(|(flags, kind, payload)| chunk(*flags, *kind, cookie, payload)).collect();
        let result = feed(&mut client, &input);
        assert!(result.is_err(), "{name}: {result:?}");
        let in_flight: Vec<u64> = client.in_flight().map(|(key, _)| key).collect();
        assert_eq!(in_flight, [1], "{name}: a caller that connects again sends the read again");
    }
}

#[test]
fn a_reply_to_no_request_or_to_an_earlier_one_is_refused() {
    let (mut client, cookie) = reading(ReplyFormat::Structured);
    for wrong in [cookie + 1, cookie ^ 1 << 32, 0, u64::MAX] {
        let error = client.handle_input(&chunk(1, 0, wrong, &[])).unwrap_err();
        assert_eq!(error, ClientError::UnknownCookie(wrong));
    }
    feed(&mut client, &chunk(1, 0x8001, cookie, &[0, 0, 0, 5, 0, 0])).unwrap();
    assert_eq!(client.in_flight().count(), 0);
    let again = client.handle_input(&chunk(1, 0, cookie, &[])).unwrap_err();
    assert_eq!(again, ClientError::UnknownCookie(cookie));
}

#[test]
fn a_client_refuses_an_announced_length_before_it_arrives() {
    let (mut client, cookie) = reading(ReplyFormat::Structured);
    let mut head = chunk(1, 0x8001, cookie, &[]);
    head[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
    assert!(matches!(client.handle_input(&head), Err(ClientError::TooLong { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_server_survives_arbitrary_options(
        flags in 0u32..8,
        options in prop::collection::vec((0u32..14, prop::collection::vec(any::<u8>(), 2..40), 0u32..5), 0..12),
        part in 1usize..64,
    ) {
        let mut bytes = flags.to_be_bytes().to_vec();
        for (option, data, wrong) in options {
            bytes.extend(b"IHAVEOPT");
            bytes.extend(option.to_be_bytes());
            bytes.extend((data.len() as u32 + wrong - 2).to_be_bytes());
            bytes.extend(data);
        }
        let mut server = ServerHandshake::new(Arc::new([writable_export()]), ServerTls::Offered);
        let mut input = Vec::new();
        for part in bytes.chunks(part) {
            input.extend(part);
            loop {
                match server.handle_input(&mut input) {
                    Ok(ServerProgress::NeedInput) => break,
                    Ok(ServerProgress::SendOutput) => prop_assert!(server.take_output().len() < 1 << 20),
                    Ok(ServerProgress::StartTls) => { server.tls_started(); break }
                    Ok(ServerProgress::Transmission(_) | ServerProgress::Disconnect) | Err(_) => return Ok(()),
                }
            }
        }
    }

    #[test]
    fn a_client_survives_arbitrary_replies(
        replies in prop::collection::vec((1u32..12, prop_oneof![0u32..6, 0x8000_0000u32..0x8000_000c], prop::collection::vec(any::<u8>(), 0..40)), 0..16),
        is_list: bool,
    ) {
        let mut bytes = b"NBDMAGICIHAVEOPT\0\x03".to_vec();
        for (option, reply, data) in replies {
            bytes.extend(0x0003_e889_0455_65a9u64.to_be_bytes());
            bytes.extend(option.to_be_bytes());
            bytes.extend(reply.to_be_bytes());
            bytes.extend((data.len() as u32).to_be_bytes());
            bytes.extend(data);
        }
        let mut client = ClientHandshake::new(ClientOptions { is_list, ..ClientOptions::export("disk") });
        let _ = client.handle_input(&mut bytes);
    }

    #[test]
    fn a_server_survives_arbitrary_requests(bytes in prop::collection::vec(any::<u8>(), 0..32), flags: u16, command in 0u16..10, is_extended: bool) {
        let format = if is_extended { ReplyFormat::Extended } else { ReplyFormat::Structured };
        let options = ClientOptions { format, ..ClientOptions::export("disk") };
        let (session, _) = crate::pair::greet(&[writable_export()], ServerTls::Off, options, usize::MAX).unwrap();
        let server = ServerRequests::new(session, &writable_export());
        let magic = if is_extended { 0x21e4_1c71u32 } else { 0x2560_9513 };
        let request = [magic.to_be_bytes().as_slice(), &flags.to_be_bytes(), &command.to_be_bytes(), &bytes].concat();
        if let Ok(Some((request, head, payload))) = server.decode(&request) {
            prop_assert!(head <= 32 && payload <= 64 << 20);
            let _ = server.check(&request);
        }
    }

    #[test]
    fn a_client_survives_arbitrary_chunks(
        chunks in prop::collection::vec((0u16..2, prop_oneof![0u16..8, 0x8000u16..0x8004], prop::collection::vec(any::<u8>(), 0..40), 4090u64..4200), 0..8),
    ) {
        let (mut client, cookie) = reading(ReplyFormat::Structured);
        for (flags, kind, mut payload, offset) in chunks {
            if payload.len() >= 8 && kind < 3 {
                payload[..8].copy_from_slice(&offset.to_be_bytes());
            }
            if feed(&mut client, &chunk(flags, kind, cookie, &payload)).is_err() {
                return Ok(());
            }
        }
    }
}

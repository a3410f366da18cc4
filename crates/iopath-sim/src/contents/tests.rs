//! Tests of the model.

use super::*;

fn bytes_of(token: u64) -> Vec<u8> {
    let mut bytes = vec![0; 128];
    fill(64, &mut bytes, token);
    bytes
}

#[test]
fn a_read_returns_no_write_that_was_superseded_before_it() {
    let mut contents = Contents::new(0, 4096);
    contents.begin_write(&(64..192), 1, 10, NO_QUEUE);
    let reader = |start| Reader { start, queue: NO_QUEUE };
    assert!(contents.check_read(64, &bytes_of(1), reader(11)).is_ok(), "in progress");
    assert!(contents.check_read(64, &[0; 128], reader(11)).is_ok());
    contents.end_write(&(64..192), 10, 12, true, false);
    assert!(contents.check_read(64, &[0; 128], reader(11)).is_ok(), "the read began before the end");
    assert!(contents.check_read(64, &[0; 128], reader(13)).is_err());
    assert!(contents.check_read(64, &bytes_of(2), reader(13)).is_err(), "never written");
    let mut moved = bytes_of(1);
    moved.rotate_left(64);
    assert!(contents.check_read(64, &moved, reader(13)).is_err(), "from another place");
}

#[test]
fn one_queue_orders_by_submission() {
    let mut contents = Contents::new(0, 4096);
    contents.begin_write(&(64..192), 1, 10, 0);
    contents.begin_write(&(64..192), 2, 11, 0);
    let reader = Reader { start: 12, queue: 0 };
    contents.end_write(&(64..192), 10, 20, true, false);
    contents.end_write(&(64..192), 11, 21, true, false);
    assert!(contents.check_read(64, &bytes_of(1), reader).is_err());
    assert!(contents.check_read(64, &bytes_of(2), reader).is_ok());
    let early = Reader { start: 10, queue: 0 };
    assert!(contents.check_read(64, &bytes_of(2), early).is_err(), "a write that was submitted later");
}

#[test]
fn a_flush_makes_completed_writes_durable() {
    let mut contents = Contents::new(0, 4096);
    contents.begin_write(&(64..192), 1, 10, NO_QUEUE);
    contents.end_write(&(64..192), 10, 12, true, false);
    assert!(contents.check_survivor(64, &[0; 128]).is_ok(), "unflushed");
    contents.begin_write(&(64..192), 2, 13, NO_QUEUE);
    contents.flushed(14, 15, 14, u64::MAX);
    assert!(contents.check_survivor(64, &[0; 128]).is_err());
    assert!(contents.check_survivor(64, &bytes_of(1)).is_ok());
    assert!(contents.check_survivor(64, &bytes_of(2)).is_ok(), "a later write may be there");
}

#[test]
fn a_read_may_return_bytes_from_before_a_loss_only_if_it_began_before_the_next_good_flush() {
    let mut contents = Contents::new(0, 4096);
    for (token, start) in [(1, 10), (2, 12)] {
        contents.begin_write(&(64..192), token, start, NO_QUEUE);
        contents.end_write(&(64..192), start, start + 1, true, false);
    }
    let reader = |start| Reader { start, queue: NO_QUEUE };
    assert!(contents.check_read(64, &bytes_of(1), reader(14)).is_err(), "no flush has failed");
    contents.put_at_risk();
    assert!(contents.check_read(64, &bytes_of(1), reader(14)).is_ok(), "the device has lost write 2");
    contents.flushed(16, 18, 14, u64::MAX);
    assert!(
        contents.check_read(64, &bytes_of(1), reader(14)).is_ok(),
        "taken from the device before the flush"
    );
    assert!(contents.check_read(64, &bytes_of(2), reader(14)).is_ok());
    assert!(contents.check_read(64, &[7; 128], reader(14)).is_err(), "never written");
    assert!(contents.check_read(64, &bytes_of(1), reader(19)).is_err(), "write 2 is on the medium");
    assert!(contents.check_survivor(64, &bytes_of(1)).is_err(), "write 2 is on the medium");
    contents.put_at_risk();
    assert!(contents.check_read(64, &bytes_of(1), reader(19)).is_err(), "a durable write cannot be lost");
}

#[test]
fn without_a_journal_a_block_may_be_stale_until_it_is_durable() {
    let mut contents = Contents::new(0, 1024);
    contents.begin_write(&(64..192), 1, 10, NO_QUEUE);
    contents.end_write(&(64..192), 10, 12, true, false);
    let stale = [[7; 512], [0; 512]].concat();
    assert!(contents.check_survivor(0, &stale).is_err());
    assert!(contents.check_reopened(&stale, 512).is_ok());
    assert!(contents.check_reopened(&[7; 1024], 512).is_err(), "the second block was never written");
    contents.flushed(13, 14, 13, u64::MAX);
    assert!(contents.check_reopened(&stale, 512).is_err());
    let mut whole = vec![0; 1024];
    fill(64, &mut whole[64..192], 1);
    assert!(contents.check_reopened(&whole, 512).is_ok());
}

#[test]
fn a_failed_write_may_be_there_until_the_next() {
    let mut contents = Contents::new(0, 4096);
    contents.begin_write(&(64..192), 1, 10, NO_QUEUE);
    contents.end_write(&(64..192), 10, 12, false, false);
    let reader = Reader { start: 13, queue: NO_QUEUE };
    assert!(contents.check_read(64, &bytes_of(1), reader).is_ok());
    assert!(contents.check_read(64, &[0; 128], reader).is_ok());
    contents.begin_write(&(64..192), 2, 14, NO_QUEUE);
    contents.end_write(&(64..192), 14, 15, true, false);
    let reader = Reader { start: 16, queue: NO_QUEUE };
    assert!(contents.check_read(64, &bytes_of(1), reader).is_err());
}

#[test]
fn a_damaged_cell_is_counted() {
    let mut contents = Contents::new(0, 4096);
    contents.damage(&(64..128));
    let reader = Reader { start: 1, queue: NO_QUEUE };
    assert_eq!(contents.check_read(64, &[7; 64], reader).ok(), Some(1));
    assert!(contents.check_read(128, &[7; 64], reader).is_err());
}

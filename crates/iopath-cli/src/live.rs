//! The live view of a long run on a terminal: owns the terminal while it exists, and restores it on every end. What it
//! shows is in `live/view.rs`, where the figures come from in `live/history.rs`.

mod history;
mod view;

pub(crate) use history::History;

use std::fs::File;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::stderr::Stderr;
use iopath_bench::{Interruption, before_end};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use rustix::process::{Signal, getpgrp, getpid, kill_process};

/// The interval of pictures.
const FRAME: Duration = Duration::from_millis(250);

/// Whether the terminal is in the state of the view.
static IS_ACTIVE: AtomicBool = AtomicBool::new(false);

/// The terminal while the view is visible.
pub(crate) struct Live {
    terminal: Terminal<CrosstermBackend<Stderr>>,
    drawn: Option<Instant>,
    is_stopping: bool,
}

impl Live {
    /// Opens the view on stderr. None if this process does not own the terminal: a background job must not change it.
    pub(crate) fn open() -> Option<Self> {
        let tty = File::open("/dev/tty").ok()?;
        if rustix::termios::tcgetpgrp(&tty).ok()? != getpgrp() {
            return None;
        }
        restore_on_every_end();
        let terminal = Terminal::new(CrosstermBackend::new(Stderr)).ok()?;
        IS_ACTIVE.store(true, Ordering::SeqCst);
        if enable_raw_mode().and_then(|()| execute!(Stderr, EnterAlternateScreen)).is_err() {
            restore();
            return None;
        }
        Some(Self { terminal, drawn: None, is_stopping: false })
    }

    /// Reads the keyboard, and draws if the last picture is old enough.
    pub(crate) fn refresh(&mut self, history: &History) {
        while event::poll(Duration::ZERO).unwrap_or(false) {
            let Ok(event) = event::read() else { break };
            match action(&event) {
                Action::Stop => self.stop(),
                Action::Redraw => self.drawn = None,
                Action::None => {}
            }
        }
        if self.drawn.is_none_or(|drawn| drawn.elapsed() >= FRAME) && IS_ACTIVE.load(Ordering::SeqCst) {
            // A terminal that cannot be drawn on does not end the run.
            let _ = self.terminal.draw(|frame| view::draw(frame, history));
            self.drawn = Some(Instant::now());
        }
    }

    /// The first time, requests the end of the run with the results so far. The second time, or in a command without
    /// partial results, ends the process as SIGINT does.
    fn stop(&mut self) {
        if !self.is_stopping && Interruption::is_caught() {
            self.is_stopping = true;
            return Interruption::request();
        }
        restore();
        let _ = kill_process(getpid(), Signal::INT);
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        restore();
    }
}

/// The effect of an event.
#[derive(Debug, PartialEq, Eq)]
enum Action {
    Stop,
    Redraw,
    None,
}

fn action(event: &Event) -> Action {
    match event {
        Event::Key(KeyEvent { kind: KeyEventKind::Release, .. }) => Action::None,
        Event::Key(KeyEvent { code: KeyCode::Char('q' | 'Q'), .. }) => Action::Stop,
        Event::Key(KeyEvent { code: KeyCode::Char('c'), modifiers, .. })
            if modifiers.contains(KeyModifiers::CONTROL) =>
        {
            Action::Stop
        }
        Event::Resize(..) => Action::Redraw,
        _ => Action::None,
    }
}

/// Returns the terminal to its former state. Any thread may call it, any number of times.
fn restore() {
    if IS_ACTIVE.swap(false, Ordering::SeqCst) {
        let _ = disable_raw_mode();
        let _ = execute!(Stderr, LeaveAlternateScreen, Show);
    }
}

/// Restores the terminal before the message of a panic and before the end by a signal.
fn restore_on_every_end() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            hook(panic);
        }));
        before_end(restore);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_and_ctrl_c_stop_and_other_keys_do_not() {
        let key = |code, modifiers| Event::Key(KeyEvent::new(code, modifiers));
        assert_eq!(action(&key(KeyCode::Char('q'), KeyModifiers::NONE)), Action::Stop);
        assert_eq!(action(&key(KeyCode::Char('c'), KeyModifiers::CONTROL)), Action::Stop);
        assert_eq!(action(&key(KeyCode::Char('c'), KeyModifiers::NONE)), Action::None);
        assert_eq!(action(&key(KeyCode::Enter, KeyModifiers::NONE)), Action::None);
        assert_eq!(action(&Event::Resize(20, 5)), Action::Redraw);
    }
}

//! Adapter of an exported program to quinn-proto 0.9, written by ccenv.
//!
//! Link the compiled C, give `Control::factory` to `TransportConfig::congestion_controller_factory`, and ask the `Pacer` before each
//! `Connection::poll_transmit(now, 1)`: controllers of quinn-proto 0.9 cannot pace, and the program's proofs assume a paced sender.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn_proto::congestion::{Controller, ControllerFactory};
use quinn_proto::RttEstimator;

/// `struct ccenv_seen`: an ACK.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Seen {
    now_us: u64,
    rtt_us: i32,
    delivered: u32,
    lost: u32,
    sent: u32,
    in_flight: u32,
    app_limited: u32,
    reord_seen: u32,
    mss: u32,
    answer: u64,
}

/// `struct ccenv_state`: what the program decided.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct State {
    beliefs: [u64; 8],
    pacing_rate: u64,
    interval: [u64; 2],
    utilised: u32,
    cwnd: u32,
    position: u32,
    asked: u32,
}

type Take = unsafe extern "C" fn(*mut u64, *const Seen, *mut State);

/// The functions of the C.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Program {
    pub sender_bytes: unsafe extern "C" fn() -> u64,
    pub begin: Take,
    pub ack: Take,
}

/// A program behind quinn's callbacks: counts bytes in full packets, and asks the program once per ACK.
#[derive(Clone)]
pub struct Control {
    program: Program,
    sender: Vec<u64>,
    begun: bool,
    origin: Instant,
    acked: u64,
    seen: Seen,
    state: State,
    newest: Option<Instant>,
    limited: bool,
    rate: Arc<AtomicU64>,
}

/// Makes the controller of a connection, and shares its rate with its pacer.
pub struct Factory {
    program: Program,
    origin: Instant,
    mss: u32,
    rate: Arc<AtomicU64>,
}

impl Control {
    /// Return the factory of one connection and its pacer; `origin` is time 0, `mss` the size of a datagram.
    pub fn factory(program: Program, origin: Instant, mss: u32) -> (Factory, Pacer) {
        let rate = Arc::new(AtomicU64::new(0));
        let pacer = Pacer { rate: rate.clone(), next: origin };
        (Factory { program, origin, mss, rate }, pacer)
    }
}

impl ControllerFactory for Factory {
    fn build(&self, _now: Instant) -> Box<dyn Controller> {
        let words = unsafe { (self.program.sender_bytes)() } as usize / 8 + 1;
        Box::new(Control {
            program: self.program,
            sender: vec![0; words],
            begun: false,
            origin: self.origin,
            acked: 0,
            seen: Seen { mss: self.mss, ..Seen::default() },
            state: State { cwnd: 10, ..State::default() },
            newest: None,
            limited: false,
            rate: self.rate.clone(),
        })
    }
}

impl Controller for Control {
    fn on_sent(&mut self, _now: Instant, _bytes: u64, _last_packet_number: u64) {
        self.seen.sent += 1;
    }

    fn on_ack(&mut self, _now: Instant, sent: Instant, bytes: u64, app_limited: bool, _rtt: &RttEstimator) {
        self.acked += bytes;
        self.newest = self.newest.max(Some(sent));
        self.limited = app_limited;
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, _app_limited: bool, _largest: Option<u64>) {
        let Some(sent) = self.newest.take() else { return };
        self.seen.now_us = (now - self.origin).as_micros() as u64;
        self.seen.rtt_us = (now - sent).as_micros() as i32;
        self.seen.delivered = (self.acked / self.seen.mss as u64) as u32;
        self.seen.in_flight = ((in_flight + self.seen.mss as u64 - 1) / self.seen.mss as u64) as u32;
        self.seen.app_limited = self.limited as u32;
        let take = if self.begun { self.program.ack } else { self.program.begin };
        unsafe { take(self.sender.as_mut_ptr(), &self.seen, &mut self.state) };
        self.begun = true;
        self.rate.store(self.state.pacing_rate, Ordering::Relaxed);
    }

    fn on_congestion_event(&mut self, _now: Instant, _sent: Instant, _persistent: bool, lost_bytes: u64) {
        self.seen.lost += ((lost_bytes + self.seen.mss as u64 - 1) / self.seen.mss as u64) as u32;
    }

    fn window(&self) -> u64 {
        self.state.cwnd as u64 * self.seen.mss as u64
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        10 * self.seen.mss as u64
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Sends at the program's rate.
pub struct Pacer {
    rate: Arc<AtomicU64>,
    next: Instant,
}

impl Pacer {
    /// Return when the next datagram may leave; None: now.
    pub fn wait(&self, now: Instant) -> Option<Instant> {
        (self.rate.load(Ordering::Relaxed) > 0 && now < self.next).then_some(self.next)
    }

    /// Count a datagram.
    pub fn sent(&mut self, now: Instant, bytes: usize) {
        let rate = self.rate.load(Ordering::Relaxed);
        if rate > 0 {
            self.next = now.max(self.next) + Duration::from_nanos(bytes as u64 * 1_000_000_000 / rate);
        }
    }
}

//! A flow of quinn-proto in virtual time for `ccenv quic`: two endpoints and an event heap behind five functions of C.
//! Times are nanoseconds since the flow's origin.

mod control;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::os::raw::c_char;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use control::{Control, Pacer, Program};
use quinn_proto::congestion::{BbrConfig, CubicConfig, NewRenoConfig};
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig, Event, ServerConfig, StreamEvent, StreamId,
    TransportConfig, VarInt,
};

const OVERHEAD: usize = 28; // of IPv4 and UDP
const LATE: u64 = 1_000; // ns by which timers fire late
const LONG_HEADER: u8 = 0x80;
const WINDOW: u32 = 1 << 30;
static CHUNK: [u8; 65_536] = [0; 65_536];

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Datagram(usize),
    Timer(u64),
}

struct End {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    timer: Option<u64>,
}

pub struct Flow {
    ends: [End; 2],
    origin: Instant,
    rtt: u64,
    heap: BinaryHeap<Reverse<(u64, u64, usize, What)>>,
    number: u64,
    packets: u64,
    data: Vec<Vec<u8>>,
    free: Vec<usize>,
    sent: Vec<(u64, f64)>,
    stream: Option<StreamId>,
    pacer: Option<Pacer>,
    closed: bool,
    bypass: bool,
    addresses: [SocketAddr; 2],
}

struct AnyServer;

impl rustls::client::ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self, _: &rustls::Certificate, _: &[rustls::Certificate], _: &rustls::ServerName, _: &mut dyn Iterator<Item = &[u8]>, _: &[u8],
        _: std::time::SystemTime,
    ) -> Result<rustls::client::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::ServerCertVerified::assertion())
    }
}

fn transport(mtu: u16) -> TransportConfig {
    let mut config = TransportConfig::default();
    config.max_idle_timeout(None).stream_receive_window(VarInt::from_u32(WINDOW)).receive_window(VarInt::from_u32(WINDOW));
    config.send_window(1 << 26).initial_max_udp_payload_size(mtu).allow_spin(false);
    config
}

impl Flow {
    fn time(&self, now: u64) -> Instant {
        self.origin + Duration::from_nanos(now)
    }

    fn push(&mut self, time: u64, end: usize, what: What) {
        self.number += 1;
        self.heap.push(Reverse((time, self.number, end, what)));
    }

    fn keep(&mut self, data: Vec<u8>) -> usize {
        match self.free.pop() {
            Some(slot) => {
                self.data[slot] = data;
                slot
            }
            None => {
                self.data.push(data);
                self.data.len() - 1
            }
        }
    }

    fn take(&mut self, slot: usize) -> Vec<u8> {
        self.free.push(slot);
        std::mem::take(&mut self.data[slot])
    }

    fn receive(&mut self, end: usize, data: Vec<u8>, now: u64) {
        let at = self.time(now);
        let from = self.addresses[1 - end];
        let side = &mut self.ends[end];
        match side.endpoint.handle(at, from, None, None, BytesMut::from(&data[..])) {
            Some((handle, DatagramEvent::NewConnection(connection))) => side.connection = Some((handle, connection)),
            Some((_, DatagramEvent::ConnectionEvent(event))) => {
                if let Some((_, connection)) = &mut side.connection {
                    connection.handle_event(event);
                }
            }
            None => {}
        }
    }

    fn pump(&mut self, end: usize, now: u64) {
        let at = self.time(now);
        let mut wait = None;
        loop {
            self.work(end);
            let Some((_, connection)) = &mut self.ends[end].connection else { return };
            if end == 0 {
                wait = self.pacer.as_ref().and_then(|pacer| pacer.wait(at));
                if wait.is_some() {
                    break;
                }
            }
            let Some(transmit) = connection.poll_transmit(at, 1) else { break };
            self.packets += 1;
            let (long, size) = (transmit.contents[0] & LONG_HEADER != 0, transmit.contents.len());
            if let (0, Some(pacer)) = (end, &mut self.pacer) {
                pacer.sent(at, size);
            }
            let slot = self.keep(transmit.contents);
            if end == 1 {
                self.push(now + self.rtt, 0, What::Datagram(slot));
            } else if long && self.bypass {
                self.push(now, 1, What::Datagram(slot));
            } else {
                self.sent.push((slot as u64, (size + OVERHEAD) as f64));
            }
        }
        let due = self.ends[end].connection.as_mut().and_then(|(_, connection)| connection.poll_timeout());
        let due = [due, wait].into_iter().flatten().min().map(|due| due.saturating_duration_since(self.origin).as_nanos() as u64);
        if due.is_some() && due != self.ends[end].timer {
            self.ends[end].timer = due;
            self.push(due.unwrap().max(now) + LATE, end, What::Timer(due.unwrap()));
        }
    }

    /// Pass events between endpoint and connection; write and read.
    fn work(&mut self, end: usize) {
        let Some((handle, connection)) = &mut self.ends[end].connection else { return };
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.ends[end].endpoint.handle_event(*handle, event) {
                connection.handle_event(event);
            }
        }
        while let Some(event) = connection.poll() {
            match event {
                Event::Connected if end == 0 => self.stream = connection.streams().open(Dir::Uni),
                Event::ConnectionLost { .. } => self.closed = true,
                Event::Stream(StreamEvent::Opened { dir }) => {
                    while let Some(id) = connection.streams().accept(dir) {
                        self.stream = Some(id);
                        read(connection, id);
                    }
                }
                Event::Stream(StreamEvent::Readable { id }) => read(connection, id),
                _ => {}
            }
        }
        if let (0, Some(id)) = (end, self.stream) {
            while matches!(connection.send_stream(id).write_chunks(&mut [Bytes::from_static(&CHUNK)]), Ok(n) if n.bytes > 0) {}
        }
    }

    fn advance(&mut self, until: u64) {
        while matches!(self.heap.peek(), Some(Reverse((time, ..))) if *time < until) {
            let Reverse((now, _, end, what)) = self.heap.pop().unwrap();
            match what {
                What::Datagram(slot) => {
                    let data = self.take(slot);
                    self.receive(end, data, now);
                }
                What::Timer(due) if self.ends[end].timer != Some(due) => continue,
                What::Timer(due) => {
                    self.ends[end].timer = None;
                    let at = self.time(now);
                    if let (Some((_, connection)), true) = (&mut self.ends[end].connection, due > 0) {
                        connection.handle_timeout(at);
                    }
                }
            }
            self.pump(end, now);
        }
    }
}

fn read(connection: &mut Connection, id: StreamId) {
    let mut stream = connection.recv_stream(id);
    if let Ok(mut chunks) = stream.read(false) {
        while let Ok(Some(_)) = chunks.next(usize::MAX) {}
        let _ = chunks.finalize();
    };
}

fn make(control: u32, program: Option<Program>, rtt: u64, start: u64, mtu: u16, bypass: bool, cert: &[u8], key: &[u8]) -> Option<Flow> {
    let origin = Instant::now();
    let mut sender = transport(mtu);
    let mut pacer = None;
    match (program, control) {
        (Some(program), _) => {
            let (factory, its) = Control::factory(program, origin, mtu as u32);
            pacer = Some(its);
            sender.congestion_controller_factory(factory)
        }
        (None, 0) => sender.congestion_controller_factory(Arc::new(NewRenoConfig::default())),
        (None, 1) => sender.congestion_controller_factory(Arc::new(CubicConfig::default())),
        (None, _) => sender.congestion_controller_factory(Arc::new(BbrConfig::default())),
    };
    let crypto = rustls::ClientConfig::builder().with_safe_default_cipher_suites().with_safe_default_kx_groups();
    let mut crypto = crypto
        .with_protocol_versions(&[&rustls::version::TLS13])
        .ok()?
        .with_custom_certificate_verifier(Arc::new(AnyServer))
        .with_no_client_auth();
    crypto.alpn_protocols = vec![b"ccenv".to_vec()];
    let mut client = ClientConfig::new(Arc::new(crypto));
    client.transport_config(Arc::new(sender));
    let crypto = rustls::ServerConfig::builder().with_safe_default_cipher_suites().with_safe_default_kx_groups();
    let mut crypto = crypto
        .with_protocol_versions(&[&rustls::version::TLS13])
        .ok()?
        .with_no_client_auth()
        .with_single_cert(vec![rustls::Certificate(cert.to_vec())], rustls::PrivateKey(key.to_vec()))
        .ok()?;
    crypto.alpn_protocols = vec![b"ccenv".to_vec()];
    crypto.max_early_data_size = u32::MAX;
    let mut server = ServerConfig::with_crypto(Arc::new(crypto));
    server.transport_config(Arc::new(transport(mtu)));
    let addresses: [SocketAddr; 2] = ["127.0.0.1:1111".parse().ok()?, "127.0.0.1:2222".parse().ok()?];
    let config = Arc::new(EndpointConfig::default());
    let mut near = Endpoint::new(config.clone(), None);
    let connection = near.connect(client, addresses[1], "localhost").ok()?;
    let far = Endpoint::new(config, Some(Arc::new(server)));
    let ends = [
        End { endpoint: near, connection: Some(connection), timer: Some(0) },
        End { endpoint: far, connection: None, timer: None },
    ];
    let mut flow = Flow {
        ends, origin, rtt, heap: BinaryHeap::new(), number: 0, packets: 0, data: Vec::new(), free: Vec::new(), sent: Vec::new(), stream: None,
        pacer, closed: false, bypass, addresses,
    };
    flow.push(start, 0, What::Timer(0));
    Some(flow)
}

/// # Safety
/// `program` is null or valid, `cert` and `key` hold as many bytes as told. Returns null if quinn refuses.
#[no_mangle]
pub unsafe extern "C" fn ccenv_quinn_new(
    control: u32, program: *const Program, rtt: u64, start: u64, mtu: u16, bypass: bool, cert: *const c_char, cert_bytes: usize,
    key: *const c_char, key_bytes: usize,
) -> *mut Flow {
    let cert = std::slice::from_raw_parts(cert as *const u8, cert_bytes);
    let key = std::slice::from_raw_parts(key as *const u8, key_bytes);
    match make(control, program.as_ref().copied(), rtt, start, mtu, bypass, cert, key) {
        Some(flow) => Box::into_raw(Box::new(flow)),
        None => std::ptr::null_mut(),
    }
}

/// # Safety
/// `flow` is of `ccenv_quinn_new`; `slots` and `sizes` have room for `room` packets. Returns how many were sent, negative if closed.
#[no_mangle]
pub unsafe extern "C" fn ccenv_quinn_advance(flow: *mut Flow, until: u64, slots: *mut u64, sizes: *mut f64, room: usize) -> i64 {
    let flow = &mut *flow;
    flow.advance(until);
    let n = flow.sent.len();
    if flow.closed || n > room {
        return -1;
    }
    for (i, (slot, size)) in flow.sent.drain(..).enumerate() {
        *slots.add(i) = slot;
        *sizes.add(i) = size;
    }
    n as i64
}

/// # Safety
/// `slots` holds `n` packets of `ccenv_quinn_advance`: they reach the receiver now, or are lost.
#[no_mangle]
pub unsafe extern "C" fn ccenv_quinn_deliver(flow: *mut Flow, slots: *const u64, n: usize, now: u64) {
    let flow = &mut *flow;
    for i in 0..n {
        let data = flow.take(*slots.add(i) as usize);
        flow.receive(1, data, now);
        flow.pump(1, now);
    }
}

/// # Safety
/// `flow` is of `ccenv_quinn_new`. Returns the packets of both ends.
#[no_mangle]
pub unsafe extern "C" fn ccenv_quinn_packets(flow: *const Flow) -> u64 {
    (*flow).packets
}

/// # Safety
/// `flow` is of `ccenv_quinn_new`, and is not used again.
#[no_mangle]
pub unsafe extern "C" fn ccenv_quinn_free(flow: *mut Flow) {
    drop(Box::from_raw(flow));
}

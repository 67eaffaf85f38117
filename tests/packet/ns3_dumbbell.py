"""One TCP flow of ns-3 on a link with a drop-tail queue: utilisation, mean queue, loss.

Run as a script in an environment with the package ns3 it prints the record that ``docs/data/ns3.json`` holds.
"""

from __future__ import annotations

import json
import platform
from importlib.metadata import version

CCAS = {"reno": "TcpLinuxReno", "cubic": "TcpCubic", "bbr1": "TcpBbr"}
# Mbit/s, ms, packets of buffer
PATHS = {"12 Mbit/s, 40 ms, 1 BDP": (12.0, 40.0, 40), "24 Mbit/s, 80 ms, 1 BDP": (24.0, 80.0, 160)}
END_S, WARM_UP_S = 120.0, 20.0

SCENARIO = """
#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"
namespace dumbbell {
using namespace ns3;
double queue_sum, queue_samples;
void Sample(Ptr<Queue<Packet>> queue) {
  queue_sum += queue->GetNPackets();
  queue_samples += 1;
  Simulator::Schedule(MilliSeconds(1), &Sample, queue);
}
uint64_t rx_before, drops, sent_before;
void Drop(Ptr<const Packet>) { drops++; }  // at the traffic-control layer, which sees the device's queue full
void Begin(Ptr<Queue<Packet>> queue, Ptr<PacketSink> sink) {
  rx_before = sink->GetTotalRx();
  drops = 0;
  sent_before = queue->GetTotalReceivedPackets();
  Sample(queue);
}
std::vector<double> Run(std::string cca, double mbps, double rtt_ms, int packets, double warm_up_s, double end_s) {
  queue_sum = queue_samples = 0;
  Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TypeId::LookupByName("ns3::" + cca)));
  Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
  Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
  Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
  Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 24));
  Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(1 << 24));
  Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200)));
  Config::SetDefault("ns3::TcpCubic::HyStart", BooleanValue(false));
  NodeContainer nodes;
  nodes.Create(3);  // sender, bottleneck, receiver
  PointToPointHelper access, link;
  access.SetDeviceAttribute("DataRate", StringValue("10Gbps"));
  access.SetChannelAttribute("Delay", TimeValue(Seconds(0)));
  access.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("100000p"));
  link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(static_cast<uint64_t>(mbps * 1e6))));
  link.SetChannelAttribute("Delay", TimeValue(MilliSeconds(rtt_ms / 2)));
  link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue(std::to_string(packets) + "p"));
  NetDeviceContainer near = access.Install(nodes.Get(0), nodes.Get(1));
  NetDeviceContainer far = link.Install(nodes.Get(1), nodes.Get(2));
  InternetStackHelper().Install(nodes);
  Ipv4AddressHelper address;
  address.SetBase("10.1.1.0", "255.255.255.0");
  address.Assign(near);
  address.SetBase("10.1.2.0", "255.255.255.0");
  Ipv4InterfaceContainer ends = address.Assign(far);
  TrafficControlHelper control;
  control.Uninstall(near);
  control.Uninstall(far);
  Ipv4GlobalRoutingHelper::PopulateRoutingTables();
  PacketSinkHelper to("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), 9));
  ApplicationContainer sinks = to.Install(nodes.Get(2));
  BulkSendHelper from("ns3::TcpSocketFactory", InetSocketAddress(ends.GetAddress(1), 9));
  from.SetAttribute("MaxBytes", UintegerValue(0));
  from.Install(nodes.Get(0)).Start(Seconds(0));
  Ptr<Queue<Packet>> queue = DynamicCast<PointToPointNetDevice>(far.Get(0))->GetQueue();
  Ptr<PacketSink> sink = DynamicCast<PacketSink>(sinks.Get(0));
  nodes.Get(1)->GetObject<TrafficControlLayer>()->TraceConnectWithoutContext("TcDrop", MakeCallback(&Drop));
  Simulator::Schedule(Seconds(warm_up_s), &Begin, queue, sink);
  Simulator::Stop(Seconds(end_s));
  Simulator::Run();
  double goodput = (sink->GetTotalRx() - rx_before) / (end_s - warm_up_s);
  double entered = queue->GetTotalReceivedPackets() - sent_before;
  Simulator::Destroy();
  return {goodput, queue_sum / queue_samples, drops / (entered + drops)};
}
}
"""


def run(cca: str, link_rate_mbps: float, rtt_ms: float, buffer_packets: int) -> dict[str, float]:
    """Run one flow; return utilisation by 1448 of 1502 bytes, mean packets that wait, and the share that was dropped."""
    import cppyy
    from ns import ns  # noqa: F401

    if not hasattr(cppyy.gbl, "dumbbell"):
        cppyy.cppdef(SCENARIO)
    goodput_Bps, queue, loss = cppyy.gbl.dumbbell.Run(CCAS[cca], link_rate_mbps, rtt_ms, buffer_packets, WARM_UP_S, END_S)
    return {"utilisation": goodput_Bps * 1502 / 1448 / (link_rate_mbps * 125e3), "queue_packets": queue, "loss": loss}


def record() -> dict:
    """Run every CCA on every path."""
    runs = {cca: {name: run(cca, *path) for name, path in PATHS.items()} for cca in CCAS}
    return {"ns3": version("ns3"), "machine": platform.machine(), "runs": runs}


if __name__ == "__main__":
    print(json.dumps(record(), indent=1))

package main

import (
	"context"
	"fmt"
	"log"

	"sigs.k8s.io/kube-network-policies/pkg/api"
	"sigs.k8s.io/kube-network-policies/pkg/network"
)

// judge decides which packets may pass.
type judge struct {
	known  api.PodInfoProvider
	engine interface {
		EvaluatePacket(ctx context.Context, packet *network.Packet) (bool, error)
	}
}

// ignoreLabel on a namespace is for tests of clusters that accept NetworkPolicies without enforcing them, as many network
// plugins do: none applies to connections of its Pods.
const ignoreLabel = "localcluster.dev/ignore-network-policies"

// passes logs every dropped packet, which explains unexpected effects of a policy.
func (j *judge) passes(ctx context.Context, payload []byte) bool {
	packet, err := network.ParsePacket(payload)
	if err != nil {
		log.Printf("dropped an invalid packet: %v", err)
		return false
	}
	connection := fmt.Sprintf("%s %s:%d to %s:%d", packet.Proto, packet.SrcIP, packet.SrcPort, packet.DstIP, packet.DstPort)
	// No policy would apply to it. The client retransmits a dropped packet, and by
	// then its Pod is known.
	source, found := j.known.GetPodInfoByIP(packet.SrcIP.String())
	if !found {
		log.Printf("dropped %s: its Pod is unknown", connection)
		return false
	}
	if source.GetNamespace().GetLabels()[ignoreLabel] == "true" {
		return true
	}
	allowed, err := j.engine.EvaluatePacket(ctx, &packet)
	if err != nil {
		log.Printf("dropped %s: %v", connection, err)
		return false
	}
	if !allowed {
		log.Printf("dropped %s: no policy allows it", connection)
	}
	return allowed
}

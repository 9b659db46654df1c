package main

import (
	"context"
	"fmt"
	"log"
	"net/netip"

	"sigs.k8s.io/kube-network-policies/pkg/api"
	"sigs.k8s.io/kube-network-policies/pkg/network"
)

// judge says which packets may pass.
type judge struct {
	pods   netip.Prefix
	known  api.PodInfoProvider
	engine interface {
		EvaluatePacket(ctx context.Context, packet *network.Packet) (bool, error)
	}
}

// passes logs what it refuses: that is where to look when a policy surprises.
func (j *judge) passes(ctx context.Context, payload []byte) bool {
	packet, err := network.ParsePacket(payload)
	if err != nil {
		log.Printf("dropped what is no packet: %v", err)
		return false
	}
	connection := fmt.Sprintf("%s %s:%d to %s:%d", packet.Proto, packet.SrcIP, packet.SrcPort, packet.DstIP, packet.DstPort)
	// No policy would apply to it: it waits until it is known whose it is, as a
	// client tries again what was dropped.
	if stranger := j.strangerIn(packet.SrcIP.String(), packet.DstIP.String()); stranger != "" {
		log.Printf("dropped %s: nobody knows %s yet", connection, stranger)
		return false
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

// strangerIn returns an address that is a Pod's, but of no Pod that is known.
func (j *judge) strangerIn(addresses ...string) string {
	for _, text := range addresses {
		address, err := netip.ParseAddr(text)
		if err != nil || !j.pods.Contains(address) {
			continue
		}
		if _, found := j.known.GetPodInfoByIP(text); !found {
			return text
		}
	}
	return ""
}

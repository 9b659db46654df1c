package main

import (
	"context"
	"fmt"
	"log"

	"sigs.k8s.io/kube-network-policies/pkg/api"
	"sigs.k8s.io/kube-network-policies/pkg/network"
)

// judge says which packets may pass.
type judge struct {
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
	// No policy would apply to it. A client tries again what was dropped, and by
	// then it is known whose packet it is.
	if _, found := j.known.GetPodInfoByIP(packet.SrcIP.String()); !found {
		log.Printf("dropped %s: nobody knows that Pod", connection)
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

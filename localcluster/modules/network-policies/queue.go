package main

import (
	"context"
	"errors"
	"log"
	"net"
	"time"

	nfqueue "github.com/florianl/go-nfqueue/v2"
)

// queueNumber is arbitrary: the node has its own network namespace.
const queueNumber = 100

// openQueue lets a judge decide about the packets that the kernel queues.
func openQueue(ctx context.Context, j *judge) (func(), error) {
	queue, err := nfqueue.Open(&nfqueue.Config{
		NfQueue:      queueNumber,
		Copymode:     nfqueue.NfQnlCopyPacket,
		MaxPacketLen: 128, // the headers
		MaxQueueLen:  4096,
		// Do not split segments that the network card would split.
		Flags:        nfqueue.NfQaCfgFlagGSO,
		WriteTimeout: 100 * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	decide := func(packet nfqueue.Attribute) int {
		verdict := nfqueue.NfDrop
		if j.passes(ctx, *packet.Payload) {
			verdict = nfqueue.NfAccept
		}
		if err := queue.SetVerdict(*packet.PacketID, verdict); err != nil {
			log.Printf("sending the verdict on a packet: %v", err)
		}
		return 0
	}
	if err := queue.RegisterWithErrorFunc(ctx, decide, goOn); err != nil {
		return nil, errors.Join(err, queue.Close())
	}
	return func() { _ = queue.Close() }, nil // the process exits
}

// goOn logs an error of reading packets, and continues to read.
func goOn(err error) int {
	var failure net.Error
	if !errors.As(err, &failure) || !failure.Timeout() {
		log.Printf("reading packets: %v", err)
	}
	return 0
}

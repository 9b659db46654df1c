package jetstream

import (
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

const (
	// natsHeaderPrefix is the prefix of headers that the server interprets or sets. On a copy of a message, such a header could make
	// the server drop the copy as a duplicate, or delete other messages.
	natsHeaderPrefix = "Nats-"
	// preservedPrefix precedes the names of such headers on a copy, so that the server ignores them.
	preservedPrefix = broker.HeaderPrefix + "Producer-"
	// headerFirstOrigin is the first origin of a requeued dead letter.
	headerFirstOrigin = broker.HeaderPrefix + "First-Origin"
)

// serverHeaders are headers that the server adds to a delayed message that is due, to a message from another stream, and to a
// message that is read by its sequence number.
var serverHeaders = []string{
	jetstream.SchedulerHeader, jetstream.ScheduleNextHeader, "Nats-Stream-Source",
	jetstream.StreamHeader, jetstream.SequenceHeader, jetstream.TimeStampHeaer, jetstream.SubjectHeader,
	jetstream.LastSequenceHeader, "Nats-Num-Pending", "Nats-UpTo-Sequence", "Nats-Msg-Size",
}

// isCopy reports whether a message is a dead letter or was requeued. The engine has set its headers with natsHeaderPrefix; such
// headers of the producer have preservedPrefix.
func isCopy(headers nats.Header) bool {
	return headers.Get(headerFirstOrigin) != "" || headers.Get(headerOrigin) != ""
}

func producerHeaders(headers nats.Header) nats.Header {
	if len(headers) == 0 {
		return nil
	}
	own, copied := nats.Header{}, isCopy(headers)
	for name, values := range headers {
		switch {
		case broker.HasPrefixFold(name, natsHeaderPrefix):
			if !copied && !slices.ContainsFunc(serverHeaders, func(header string) bool { return strings.EqualFold(name, header) }) {
				own[name] = values
			}
		case copied && broker.HasPrefixFold(name, preservedPrefix+natsHeaderPrefix):
			own[name[len(preservedPrefix):]] = values
		case broker.IsProducerHeader(name):
			own[name] = values
		}
	}
	return own
}

// copiedHeaders returns the headers of a copy of a message: the headers of its producer, without instructions for the server, and
// the headers by which jobID finds the same ID.
func copiedHeaders(headers nats.Header) nats.Header {
	kept := nats.Header{}
	for name, values := range producerHeaders(headers) {
		if broker.IsBatchHeader(name) {
			continue
		}
		if broker.HasPrefixFold(name, natsHeaderPrefix) {
			name = preservedPrefix + name
		}
		kept[name] = values
	}
	if id := chosenID(headers); id != "" {
		kept.Set(broker.JobIDHeader, id)
	}
	if first := headers.Get(headerFirstOrigin); first != "" {
		kept.Set(headerFirstOrigin, first)
	}
	return kept
}

// jobID returns the ID of a job, which its copies keep: the ID that the producer chose, or else the first sequence number of the
// message. In another queue, the name of the first stream precedes this number, because the other queue may have a message with
// the same number.
func jobID(headers nats.Header, queue, sequence string) string {
	if len(headers) == 0 {
		return sequence
	}
	if id := chosenID(headers); id != "" {
		return id
	}
	if first := headers.Get(headerFirstOrigin); broker.IsIdentifier(first) {
		return strings.TrimPrefix(first, streamName(queue)+"/")
	}
	return sequence
}

// chosenID returns the ID that the producer chose for a job; empty if it chose no ID, or an invalid ID.
func chosenID(headers nats.Header) string {
	id := broker.HeaderValue(headers, broker.JobIDHeader)
	if id == "" && !isCopy(headers) {
		id = headers.Get(jetstream.MsgIDHeader) // the server interprets only this spelling
	}
	if !broker.IsIdentifier(id) {
		return ""
	}
	return id
}

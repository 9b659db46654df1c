package jetstream

import (
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

const (
	// natsHeaderPrefix is the prefix of headers that the server interprets or sets. On a copy of a message, they could
	// make the server drop the copy as a duplicate, or delete other messages.
	natsHeaderPrefix = "Nats-"
	// preservedPrefix is put before the names of such headers on a copy, which the server then ignores.
	preservedPrefix = broker.HeaderPrefix + "Producer-"
	// headerFirstOrigin is the origin that a message had first, if it is a requeued dead letter.
	headerFirstOrigin = broker.HeaderPrefix + "First-Origin"
)

// serverHeaders are set by the server and not by producers: those that it adds to a delayed message that is due, to a
// message from another stream, and to a message that is read by its sequence number.
var serverHeaders = []string{
	jetstream.SchedulerHeader, jetstream.ScheduleNextHeader, "Nats-Stream-Source",
	jetstream.StreamHeader, jetstream.SequenceHeader, jetstream.TimeStampHeaer, jetstream.SubjectHeader,
	jetstream.LastSequenceHeader, "Nats-Num-Pending", "Nats-UpTo-Sequence", "Nats-Msg-Size",
}

// isCopy reports whether a message is a dead letter, or one that was requeued. Its headers with natsHeaderPrefix are
// those of the engine; those of the producer have preservedPrefix.
func isCopy(headers nats.Header) bool {
	return headers.Get(headerFirstOrigin) != "" || headers.Get(headerOrigin) != ""
}

// producerHeaders returns the headers set by the producer.
func producerHeaders(headers nats.Header) nats.Header {
	if len(headers) == 0 {
		return nil
	}
	own, copied := nats.Header{}, isCopy(headers)
	for name, values := range headers {
		if name, isOwn := producerName(name, copied); isOwn {
			own[name] = values
		}
	}
	return own
}

// producerName returns the name that the producer gave to a header.
func producerName(name string, copied bool) (original string, isOwn bool) {
	switch {
	case broker.HasPrefixFold(name, natsHeaderPrefix):
		isOfServer := slices.ContainsFunc(serverHeaders, func(header string) bool { return strings.EqualFold(name, header) })
		return name, !copied && !isOfServer
	case copied && broker.HasPrefixFold(name, preservedPrefix+natsHeaderPrefix):
		return name[len(preservedPrefix):], true
	}
	return name, broker.IsProducerHeader(name)
}

// copiedHeaders returns the headers of a copy of a message: those of its producer, without instructions for the
// server, and those by which jobID finds the same ID.
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

// originOf returns the origin of a message of a queue.
func originOf(queue, sequence string) string { return streamName(queue) + "/" + sequence }

// jobID returns the ID of a job, which its copies keep: that which the producer chose, or else the sequence number that
// the message had first. In another queue, the name of its stream precedes that one, because the other queue may have
// a message with this sequence number.
func jobID(headers nats.Header, queue, sequence string) string {
	if len(headers) == 0 {
		return sequence
	}
	if id := chosenID(headers); id != "" {
		return id
	}
	if first := headers.Get(headerFirstOrigin); broker.IsIdentifier(first) {
		return strings.TrimPrefix(first, originOf(queue, ""))
	}
	return sequence
}

// chosenID returns the ID that the producer chose for a job; empty if it chose none, or an invalid one.
func chosenID(headers nats.Header) string {
	id := broker.HeaderValue(headers, broker.JobIDHeader)
	if id == "" && !isCopy(headers) {
		id = headers.Get(jetstream.MsgIDHeader) // the server knows this spelling only
	}
	if !broker.IsIdentifier(id) {
		return ""
	}
	return id
}

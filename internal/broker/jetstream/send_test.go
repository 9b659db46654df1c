package jetstream

import (
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestTheIDOfADelayedJobIsOneTokenOfItsSubject(t *testing.T) {
	t.Parallel()
	token := regexp.MustCompile(`^yardmaster\.orders\.delayed\.[^. *>]+$`)
	seen := map[string]string{}
	for _, id := range []string{"order-7", "ORDER_7", "a.b", "a.*", ">", "a/b", "a:b", "~YS5i", "-", "{}"} {
		subject := delayedSubject("orders", delayedToken(id))
		require.True(t, token.MatchString(subject) && seen[subject] == "", "ID %q: subject %s, which %q has too", id, subject, seen[subject])
		seen[subject] = id
	}
	require.Equal(t, "yardmaster.orders.delayed.order-7", delayedSubject("orders", delayedToken("order-7")))
	require.Equal(t, "yardmaster.orders.delayed.~YS5i", delayedSubject("orders", delayedToken("a.b")))
}

func TestARefusalOfTheServerIsClassified(t *testing.T) {
	t.Parallel()
	for title, row := range map[string]struct {
		err  jetstream.APIError
		want error
	}{
		"full":              {jetstream.APIError{Code: 503, ErrorCode: 10077, Description: "maximum messages exceeded"}, broker.ErrQueueFull},
		"full, by bytes":    {jetstream.APIError{Code: 503, ErrorCode: 10077, Description: "maximum bytes exceeded"}, broker.ErrQueueFull},
		"disk error":        {jetstream.APIError{Code: 503, ErrorCode: 10077, Description: "no space left on device"}, broker.ErrUnavailable},
		"out of storage":    {jetstream.APIError{Code: 500, ErrorCode: 10047, Description: "insufficient storage resources available"}, broker.ErrUnavailable},
		"limit of account":  {jetstream.APIError{Code: 400, ErrorCode: 10002, Description: "resource limits exceeded for account"}, broker.ErrUnavailable},
		"overloaded":        {jetstream.APIError{Code: 429, ErrorCode: 10167, Description: "too many requests"}, broker.ErrUnavailable},
		"message too large": {jetstream.APIError{Code: 400, ErrorCode: 10054, Description: "message size exceeds maximum allowed"}, broker.ErrPayloadTooLarge},
		"headers too large": {jetstream.APIError{Code: 400, ErrorCode: 10097, Description: "header size exceeds maximum allowed of 64k"}, broker.ErrPayloadTooLarge},
		"sealed":            {jetstream.APIError{Code: 400, ErrorCode: 10109, Description: "invalid operation on sealed stream"}, broker.ErrDraining},
		"anything else":     {jetstream.APIError{Code: 400, ErrorCode: 10060, Description: "expected stream does not match"}, broker.ErrInvalidJob},
	} {
		err := refusal(&row.err)
		require.True(t, errors.Is(err, row.want), "%s: %v, want %v", title, err, row.want)
	}
}

// A server whose limit was lowered sends its clients no new limit, and ends the connection of a client that exceeds the limit for good.
func TestAClientWhoseConnectionTheServerEndedReportsWhy(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	e := connectTo(t, server)
	ensureQueue(t, e, ordersQueue())
	lowered := server.Options().Clone()
	lowered.MaxPayload = 64 << 10
	require.NoError(t, server.ReloadOptions(lowered))
	for _, size := range []int{2 * 64 << 10, 1} {
		job := &broker.OutgoingJob{Queue: "orders", Payload: make([]byte, size)}
		_, err := e.Send(withinAMinute(t), job)
		many := e.SendMany(withinAMinute(t), "orders", []*broker.OutgoingJob{job})
		for _, err := range []error{err, many[0].Err} {
			failure := (*broker.SendError)(nil)
			require.ErrorContains(t, err, "Maximum Payload Violation")
			require.True(t, errors.As(err, &failure) && errors.Is(failure.Failure, broker.ErrUnavailable), "%d bytes: %v", size, err)
		}
	}
}

func TestAMessageHasOnlyTheHeadersThatItNeeds(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	delayed := []string{"Yardmaster-Job-Id", "Nats-Schedule", "Nats-Schedule-Target", "Nats-Expected-Last-Subject-Sequence"}
	for title, row := range map[string]struct {
		job    broker.OutgoingJob
		want   []string
		wantID bool
	}{
		"nothing set: the server assigns the ID": {broker.OutgoingJob{}, nil, false},
		"ID":               {broker.OutgoingJob{ID: "a", HasChosenID: true}, []string{"Nats-Msg-Id"}, true},
		"kind and timeout": {broker.OutgoingJob{Kind: "a", Timeout: time.Second}, []string{"Yardmaster-Kind", "Yardmaster-Timeout"}, false},
		"due in the past":  {broker.OutgoingJob{DueTime: now}, nil, false},
		"delayed":          {broker.OutgoingJob{DueTime: now.Add(1)}, delayed, true},
	} {
		row.job.Queue = "orders"
		message, id := outgoingMessage(&row.job, now)
		require.True(t, len(message.Header) == len(row.want) && (id != "") == row.wantID, "%s: ID %q, headers %v", title, id, message.Header)
		for _, name := range row.want {
			require.True(t, message.Header.Get(name) != "", "%s: no header %s in %v", title, name, message.Header)
		}
	}
}

package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yardmaster/yardmaster/internal/backlog"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/redisclient"
)

// StreamSource reads the backlog of a consumer group.
type StreamSource struct {
	client     redis.UniversalClient
	key, group string
}

var _ backlog.Source = (*StreamSource)(nil)

// NewStreamSource connects to the server.
func NewStreamSource(ctx context.Context, credentials broker.Credentials, key, group string) (backlog.Source, error) {
	client, err := redisclient.NewClient(ctx, credentials, connectionPoolSize)
	if err != nil {
		return nil, err
	}
	return &StreamSource{client, key, group}, nil
}

// Read implements backlog.Source. Entries that the group has not read are the backlog;
// entries read and not acknowledged are in flight.
func (s *StreamSource) Read(ctx context.Context) (backlog.Reading, error) {
	reading, err := s.readGroup(ctx)
	return reading, redisclient.ClassifyError(fmt.Sprintf("reading the group %q of the stream %q", s.group, s.key), err)
}

func (s *StreamSource) readGroup(ctx context.Context) (backlog.Reading, error) {
	groups, err := s.client.XInfoGroups(ctx, s.key).Result()
	if err != nil {
		return backlog.Reading{}, err
	}
	for i := range groups {
		if groups[i].Name == s.group {
			return s.readingFromGroup(ctx, &groups[i])
		}
	}
	return backlog.Reading{}, broker.Errorf(broker.ClassNotFound, "the stream has no such group")
}

// readingFromGroup uses the lag that the server reports. Redis cannot report it after
// deletions or for a group created in the middle of the stream, and not before version 7.
// Then the entries after the last delivered one are counted.
func (s *StreamSource) readingFromGroup(ctx context.Context, group *redis.XInfoGroup) (backlog.Reading, error) {
	reading := backlog.Reading{Backlog: group.Lag, InFlight: &group.Pending, MeasuredTime: time.Now()}
	if group.Lag >= 0 && group.EntriesRead > 0 {
		reading.TotalArrivals = new(uint64(group.EntriesRead + group.Lag))
	}
	if group.Lag <= 0 {
		var err error
		reading.Backlog, err = countAfterScript.Run(ctx, s.client, []string{s.key}, "("+group.LastDeliveredID, maxCountedEntries).Int64()
		if err != nil {
			return backlog.Reading{}, err
		}
	}
	return reading, nil
}

// maxCountedEntries bounds how many entries are counted one by one. A larger backlog is
// reported as this number.
const maxCountedEntries = 10_000

// countAfterScript counts on the server, because entries may be large.
var countAfterScript = redis.NewScript(`return #redis.call("XRANGE", KEYS[1], ARGV[1], "+", "COUNT", ARGV[2])`)

// Disconnect closes the connection.
func (s *StreamSource) Disconnect() { _ = s.client.Close() }

// Package redis reads the backlog of a Redis list, or of a consumer group of a Redis stream.
package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/backlog"
	"github.com/yardmaster/yardmaster/internal/broker/redisclient"
)

const (
	// connectionPoolSize allows a second request while the first is slow.
	connectionPoolSize = 2
	// maxCountedEntries bounds how many entries are counted one by one. A larger backlog is reported as this number.
	maxCountedEntries = 10_000
)

type keySource struct {
	client redis.UniversalClient
	// description of the backlog, for errors.
	description string
	read        func(context.Context, redis.UniversalClient) (backlog.Reading, error)
}

func (s *keySource) connect(ctx context.Context, credentials broker.Credentials) (backlog.Source, error) {
	var err error
	if s.client, err = redisclient.NewClient(ctx, credentials, connectionPoolSize); err != nil {
		return nil, err
	}
	return s, nil
}

// Read implements backlog.Source.
func (s *keySource) Read(ctx context.Context) (backlog.Reading, error) {
	reading, err := s.read(ctx, s.client)
	if err != nil {
		return backlog.Reading{}, redisclient.ClassifyError("reading "+s.description, err)
	}
	reading.MeasuredTime = time.Now()
	return reading, nil
}

// Disconnect closes the connection.
func (s *keySource) Disconnect() { _ = s.client.Close() }

// NewListSource connects to a source that reads the length of a list. Redis does not distinguish missing and empty lists.
func NewListSource(ctx context.Context, credentials broker.Credentials, key string) (backlog.Source, error) {
	return (&keySource{
		description: fmt.Sprintf("the length of the list %q", key),
		read: func(ctx context.Context, client redis.UniversalClient) (backlog.Reading, error) {
			length, err := client.LLen(ctx, key).Result()
			return backlog.Reading{Backlog: length}, err
		},
	}).connect(ctx, credentials)
}

// NewStreamSource connects to a source that reads the backlog of a consumer group. Entries that the group has not read are the backlog;
// entries that are read and not acknowledged are in flight.
func NewStreamSource(ctx context.Context, credentials broker.Credentials, key, group string) (backlog.Source, error) {
	return (&keySource{
		description: fmt.Sprintf("the group %q of the stream %q", group, key),
		read: func(ctx context.Context, client redis.UniversalClient) (backlog.Reading, error) {
			groups, err := client.XInfoGroups(ctx, key).Result()
			if err != nil {
				return backlog.Reading{}, err
			}
			for i := range groups {
				if groups[i].Name == group {
					return readGroup(ctx, client, key, &groups[i])
				}
			}
			return backlog.Reading{}, broker.Errorf(broker.ClassNotFound, "the stream has no such group")
		},
	}).connect(ctx, credentials)
}

// countAfterScript counts on the server, because entries may be large.
var countAfterScript = redis.NewScript(`return #redis.call("XRANGE", KEYS[1], ARGV[1], "+", "COUNT", ARGV[2])`)

// readGroup uses the lag that the server reports. Otherwise, it counts the entries after the last delivered entry: Redis reports no lag
// after deletions, for a group that was created in the middle of the stream, and before version 7.
func readGroup(ctx context.Context, client redis.UniversalClient, key string, group *redis.XInfoGroup) (backlog.Reading, error) {
	reading := backlog.Reading{Backlog: group.Lag, InFlight: &group.Pending}
	if group.Lag >= 0 && group.EntriesRead > 0 {
		reading.TotalArrivals = new(uint64(group.EntriesRead + group.Lag))
	}
	var err error
	if group.Lag <= 0 {
		reading.Backlog, err = countAfterScript.Run(ctx, client, []string{key}, "("+group.LastDeliveredID, maxCountedEntries).Int64()
	}
	return reading, err
}

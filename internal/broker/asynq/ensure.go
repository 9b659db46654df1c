package asynq

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// EnsureQueue implements broker.Engine. The pause is the only setting of a queue in asynq.
func (e *Engine) EnsureQueue(ctx context.Context, queue broker.QueueConfig) (result broker.EnsureResult, err error) {
	if err := queue.Validate(); err != nil {
		return result, &broker.ClassifiedError{Class: broker.ClassInvalid, Err: err}
	}
	defer func() { err = queueError("ensuring", queue.Name, err) }()
	isKnown, err := e.client.SIsMember(ctx, queuesKey, queue.Name).Result()
	switch {
	case err != nil:
		return result, err
	case !isKnown && queue.MustExist:
		return result, queueNotFound(queue.Name)
	}
	hash := broker.HashConfig(queue.WithoutOwner())
	err = e.updateRecord(ctx, queue.Name, func(record map[string]string, paused bool) (func(goredis.Pipeliner), error) {
		if isKnown || len(record) > 0 {
			if err := queue.CheckOwnership(ownerFromRecord(record)); err != nil {
				return nil, err
			}
		}
		result = broker.EnsureResult{Created: !isKnown, Updated: isKnown && record[fieldAppliedHash] != hash}
		isNewConfig := result.Created || result.Updated
		correctsPause := isNewConfig || queue.Drift == broker.DriftCorrect
		if paused != queue.Paused && !isNewConfig {
			result.Drift = []broker.SettingDifference{{
				Object: "queue " + queue.Name, Setting: "paused", Want: strconv.FormatBool(queue.Paused), Found: strconv.FormatBool(paused),
			}}
			result.Corrected = correctsPause
		}
		isApplied := !isNewConfig && ownerFromRecord(record) == queue.Owner && record[fieldClosed] == ""
		if isApplied && (paused == queue.Paused || !correctsPause) {
			return nil, nil
		}
		return func(p goredis.Pipeliner) {
			key := recordKey(queue.Name)
			p.HSet(ctx, key, ownerFields(queue.Owner))
			p.HSet(ctx, key, fieldAppliedHash, hash)
			p.HDel(ctx, key, fieldClosed, fieldRetention)
			if retention := queue.Results.Retention; retention > 0 {
				p.HSet(ctx, key, fieldRetention, int64(retention/time.Second))
			}
			// The Inspector of asynq does the same outside a transaction.
			switch pausedKey := queueKey(queue.Name, pausedFlag); {
			case correctsPause && queue.Paused:
				p.SetNX(ctx, pausedKey, time.Now().Unix(), 0)
			case correctsPause:
				p.Del(ctx, pausedKey)
			}
		}, nil
	})
	if err == nil && !isKnown {
		err = e.client.SAdd(ctx, queuesKey, queue.Name).Err()
	}
	result.Enforcement = e.capabilitiesFor(&queue)
	if err == nil {
		result.EvictionPolicy = e.evictionPolicy(ctx)
	}
	return result, err
}

// evictionPolicy returns the policy by which a server deletes tasks when its memory is full; empty if it deletes none, or does not say:
// managed servers restrict INFO. Even a policy for keys that expire deletes the locks of unique tasks, and tasks that are kept after their end.
func (e *Engine) evictionPolicy(ctx context.Context) (policy string) {
	read := func(ctx context.Context, server goredis.Cmdable) {
		info, err := server.Info(ctx, "memory").Result()
		_, found, _ := strings.Cut(info, "maxmemory_policy:")
		if found, _, _ = strings.Cut(found, "\r\n"); err == nil && found != "" && found != "noeviction" {
			policy = broker.TruncateText(found)
		}
	}
	cluster, isCluster := e.client.(*goredis.ClusterClient)
	if !isCluster {
		read(ctx, e.client)
		return policy
	}
	var mu sync.Mutex // ForEachMaster calls the function for several masters at the same time
	_ = cluster.ForEachMaster(ctx, func(ctx context.Context, server *goredis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		read(ctx, server)
		return nil
	})
	return policy
}

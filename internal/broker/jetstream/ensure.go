package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// EnsureQueue implements broker.Engine.
func (e *Engine) EnsureQueue(ctx context.Context, queue broker.QueueConfig) (broker.EnsureResult, error) {
	if err := queue.Validate(); err != nil {
		return broker.EnsureResult{}, &broker.ClassifiedError{Class: broker.ClassInvalid, Err: err}
	}
	n := &ensureOperation{Engine: e, desiredQueue: desiredQueue{QueueConfig: &queue}}
	err := n.run(ctx)
	return n.result, e.classifyError("ensuring the queue "+queue.Name, err)
}

// ensureOperation is one call of EnsureQueue.
type ensureOperation struct {
	*Engine
	desiredQueue

	result broker.EnsureResult
	// applyChanges: settings that differ are changed.
	applyChanges bool
}

func (n *ensureOperation) run(ctx context.Context) error {
	stream, err := n.getOrCreateStream(ctx)
	if err != nil {
		return err
	}
	config := stream.CachedInfo().Config
	fingerprint, err := n.configHash()
	if err != nil {
		return err
	}
	n.result.Updated = config.Metadata[metaApplied] != fingerprint && !n.result.Created
	n.applyChanges = n.result.Created || n.result.Updated || n.Drift == broker.DriftCorrect
	n.result.Enforcement = n.enforcement(n.QueueConfig, n.allowSchedules)

	for _, part := range []func(context.Context) error{
		func(ctx context.Context) error { return n.ensureStream(ctx, config) },
		n.ensureDeadStream,
		n.ensureRateLimit,
		func(ctx context.Context) error { return n.ensureConsumers(ctx, stream) },
	} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	if config.Metadata[metaApplied] != fingerprint {
		// The hash is stored last: an interrupted call is repeated, and its remainder is not
		// drift.
		if _, err := n.js.UpdateStream(ctx, n.streamConfig(config, fingerprint)); err != nil {
			return err
		}
	}
	n.finishDriftReport()
	return nil
}

// finishDriftReport drops differences that are not drift but a new configuration.
func (n *ensureOperation) finishDriftReport() {
	if n.result.Created || n.result.Updated {
		n.result.Drift = nil
	}
	n.result.Corrected = n.applyChanges && len(n.result.Drift) > 0
}

// getOrCreateStream checks the ownership of an existing stream.
func (n *ensureOperation) getOrCreateStream(ctx context.Context) (jetstream.Stream, error) {
	n.allowSchedules = n.MaxBacklog == 0 && n.supportsSchedules()
	stream, err := n.js.Stream(ctx, streamName(n.Name))
	if isNotFound(err) {
		n.result.Created = true
		stream, err = n.js.CreateStream(ctx, n.newStreamConfig())
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			// Another client created it at the same time, and may be its owner.
			n.result.Created = false
			stream, err = n.js.Stream(ctx, streamName(n.Name))
		}
	}
	if err != nil {
		return nil, err
	}
	config := stream.CachedInfo().Config
	if config.Retention != jetstream.WorkQueuePolicy {
		return nil, immutableSettingError("the stream "+config.Name, "retention", jetstream.WorkQueuePolicy, config.Retention)
	}
	// The server cannot disable schedules once a stream has them.
	n.allowSchedules = n.allowSchedules || config.AllowMsgSchedules
	return stream, n.checkOwnership(ownerFromMetadata(config.Metadata))
}

// checkOwnership returns an error if another owner keeps the queue.
func (n *ensureOperation) checkOwnership(has broker.QueueOwner) error {
	switch {
	case has.UID == "", has.UID == n.Owner.UID, has.UID == n.ReplacesOwnerUID, n.Owner.HasPrecedenceOver(has):
		return nil
	}
	return &broker.OwnerConflictError{Queue: n.Name, Owner: has}
}

func (n *ensureOperation) ensureStream(ctx context.Context, found jetstream.StreamConfig) error {
	want := n.streamConfig(found, "")
	drift := streamDrift(&want, &found)
	if len(drift) == 0 {
		return nil
	}
	n.result.Drift = append(n.result.Drift, drift...)
	if !n.applyChanges {
		return nil
	}
	_, err := n.js.UpdateStream(ctx, want)
	return err
}

func (n *ensureOperation) ensureDeadStream(ctx context.Context) error {
	stream, err := n.js.Stream(ctx, deadStreamName(n.Name))
	if isNotFound(err) {
		n.reportMissingObject("stream "+deadStreamName(n.Name), "exists")
		_, err = n.js.CreateStream(ctx, n.newDeadStreamConfig())
		return err
	}
	if err != nil {
		return err
	}
	found := stream.CachedInfo().Config
	if found.Retention != jetstream.LimitsPolicy {
		return immutableSettingError("the stream "+found.Name, "retention", jetstream.LimitsPolicy, found.Retention)
	}
	want := n.deadStreamConfig(found)
	drift := streamDrift(&want, &found)
	if len(drift) == 0 {
		return nil
	}
	n.result.Drift = append(n.result.Drift, drift...)
	if !n.applyChanges {
		return nil
	}
	_, err = n.js.UpdateStream(ctx, want)
	return err
}

// reportMissingObject reports an object that someone deleted. It is created again even with
// drift policy Warn: the queue does not work without it.
func (n *ensureOperation) reportMissingObject(object, setting string) {
	n.result.Drift = append(n.result.Drift, broker.SettingDifference{Object: object, Setting: setting, Want: "true", Found: "false"})
}

func (n *ensureOperation) ensureRateLimit(ctx context.Context) error {
	bucket, err := n.openBucket(ctx, n.Name)
	if isNotFound(err) {
		n.reportMissingObject("bucket "+bucketName(n.Name), "exists")
		bucket, err = n.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: bucketName(n.Name), History: 1, LimitMarkerTTL: time.Minute, Replicas: createdReplicas,
		})
	}
	if err != nil {
		return err
	}
	var raw []byte
	entry, err := bucket.Get(ctx, rateLimitKey)
	switch {
	case err == nil:
		raw = entry.Value()
	case !isNotFound(err):
		return err
	}
	drift := rateLimitDrift(n.Name, n.rateLimitRecord(), raw)
	if len(drift) == 0 {
		return nil
	}
	n.result.Drift = append(n.result.Drift, drift...)
	if !n.applyChanges {
		return nil
	}
	value, err := json.Marshal(n.rateLimitRecord())
	if err != nil {
		return err
	}
	_, err = bucket.Put(ctx, rateLimitKey, value)
	return err
}

func (e *Engine) openBucket(ctx context.Context, queue string) (jetstream.KeyValue, error) {
	return e.js.KeyValue(ctx, bucketName(queue))
}

func (n *ensureOperation) ensureConsumers(ctx context.Context, stream jetstream.Stream) error {
	infos, err := listConsumers(ctx, stream)
	if err != nil {
		return err
	}
	found := map[string]jetstream.ConsumerConfig{}
	for name, info := range infos {
		found[name] = info.Config
	}
	for _, want := range n.consumerConfigs(found) {
		if err := n.ensureConsumer(ctx, stream, want, infos[want.Name]); err != nil {
			return err
		}
	}
	return n.removeRetiredConsumers(ctx, stream, infos)
}

// ensureConsumer creates the consumer if found is nil.
func (n *ensureOperation) ensureConsumer(
	ctx context.Context, stream jetstream.Stream, want jetstream.ConsumerConfig, found *jetstream.ConsumerInfo,
) error {
	if found == nil {
		if !n.result.Created {
			n.reportMissingObject("consumer "+want.Name+" of "+streamName(n.Name), "exists")
		}
		if n.Paused {
			want.PauseUntil = &indefinitePauseTime
		}
		_, err := stream.CreateConsumer(ctx, want)
		return err
	}
	if found.Config.AckPolicy != jetstream.AckExplicitPolicy {
		return immutableSettingError("the consumer "+want.Name+" of "+streamName(n.Name), "ack_policy", want.AckPolicy, found.Config.AckPolicy)
	}
	drift := consumerDrift(n.Name, &want, &found.Config)
	paused := pauseDrift(n.Name, want.Name, n.Paused, found.Paused)
	n.result.Drift = append(append(n.result.Drift, drift...), paused...)
	if len(drift) > 0 && n.applyChanges {
		if _, err := stream.UpdateConsumer(ctx, want); err != nil {
			return err
		}
	}
	if len(paused) > 0 && n.applyChanges {
		return setConsumerPaused(ctx, stream, want.Name, n.Paused)
	}
	return nil
}

// removeRetiredConsumers deletes consumers of priorities that are no longer configured, once
// they are empty.
func (n *ensureOperation) removeRetiredConsumers(ctx context.Context, stream jetstream.Stream, infos map[string]*jetstream.ConsumerInfo) error {
	for name, info := range infos {
		still := slices.ContainsFunc(n.Priorities, func(p broker.Priority) bool { return p.Name == name })
		if still || info.Config.Metadata[metaWeight] == "" {
			continue
		}
		if info.NumPending > 0 || info.NumAckPending > 0 || !n.applyChanges {
			n.result.RetiringPriorities = append(n.result.RetiringPriorities, name)
			continue
		}
		if err := stream.DeleteConsumer(ctx, name); err != nil && !isNotFound(err) {
			return err
		}
	}
	slices.Sort(n.result.RetiringPriorities)
	return nil
}

// listConsumers returns the consumers of a stream by name.
func listConsumers(ctx context.Context, stream jetstream.Stream) (map[string]*jetstream.ConsumerInfo, error) {
	all := map[string]*jetstream.ConsumerInfo{}
	lister := stream.ListConsumers(ctx)
	for info := range lister.Info() {
		all[info.Name] = info
	}
	return all, lister.Err()
}

// SetPaused implements broker.Engine.
func (e *Engine) SetPaused(ctx context.Context, queue string, paused bool) error {
	err := func() error {
		stream, err := e.js.Stream(ctx, streamName(queue))
		if err != nil {
			return err
		}
		infos, err := listConsumers(ctx, stream)
		if err != nil {
			return err
		}
		for name, info := range infos {
			if info.Config.Metadata[metaWeight] == "" || info.Paused == paused {
				continue
			}
			if err := setConsumerPaused(ctx, stream, name, paused); err != nil {
				return err
			}
		}
		return nil
	}()
	return e.classifyError(fmt.Sprintf("setting paused of the queue %s to %t", queue, paused), err)
}

func setConsumerPaused(ctx context.Context, stream jetstream.Stream, consumer string, paused bool) error {
	if paused {
		_, err := stream.PauseConsumer(ctx, consumer, indefinitePauseTime)
		return err
	}
	_, err := stream.ResumeConsumer(ctx, consumer)
	return err
}

package jetstream

import (
	"context"
	"encoding/json"
	"errors"
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
	fingerprint := n.configHash()
	isApplied := config.Metadata[metaApplied] == fingerprint && ownerFromMetadata(config.Metadata) == n.Owner
	n.result.Updated = !isApplied && !n.result.Created
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
	if !isApplied {
		// The hash is stored last: an interrupted call is repeated, and its remainder is not
		// drift.
		if _, err := n.js.UpdateStream(ctx, n.streamConfig(config, fingerprint)); err != nil {
			return err
		}
	}
	if n.result.Created || n.result.Updated {
		n.result.Drift = nil // the differences are a new configuration
	}
	n.result.Corrected = n.applyChanges && len(n.result.Drift) > 0
	return nil
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
	if err := n.CheckOwnership(ownerFromMetadata(config.Metadata)); err != nil {
		return nil, err // its settings are another owner's
	}
	if config.Retention != jetstream.WorkQueuePolicy {
		return nil, immutableSettingError("the stream "+config.Name, "retention", jetstream.WorkQueuePolicy, config.Retention)
	}
	// The server cannot disable schedules once a stream has them.
	n.allowSchedules = n.allowSchedules || config.AllowMsgSchedules
	return stream, nil
}

// reportDrift adds differences to the result. It reports whether they have to be corrected.
func (n *ensureOperation) reportDrift(drift []broker.SettingDifference) bool {
	n.result.Drift = append(n.result.Drift, drift...)
	return len(drift) > 0 && n.applyChanges
}

func (n *ensureOperation) ensureStream(ctx context.Context, found jetstream.StreamConfig) error {
	want := n.streamConfig(found, "")
	if !n.reportDrift(streamDrift(&want, &found)) {
		return nil
	}
	_, err := n.js.UpdateStream(ctx, want)
	return err
}

func (n *ensureOperation) ensureDeadStream(ctx context.Context) error {
	stream, err := n.js.Stream(ctx, deadStreamName(n.Name))
	if isNotFound(err) {
		n.reportMissingObject("stream " + deadStreamName(n.Name))
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
	if !n.reportDrift(streamDrift(&want, &found)) {
		return nil
	}
	_, err = n.js.UpdateStream(ctx, want)
	return err
}

// reportMissingObject reports an object that someone deleted. It is created again even with
// drift policy Warn: the queue does not work without it.
func (n *ensureOperation) reportMissingObject(object string) {
	n.result.Drift = append(n.result.Drift, broker.SettingDifference{Object: object, Setting: "exists", Want: "true", Found: "false"})
}

func (n *ensureOperation) ensureRateLimit(ctx context.Context) error {
	bucket, err := n.js.KeyValue(ctx, bucketName(n.Name))
	if isNotFound(err) {
		n.reportMissingObject("bucket " + bucketName(n.Name))
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
	if !n.reportDrift(rateLimitDrift(n.Name, n.rateLimitRecord(), raw)) {
		return nil
	}
	value, err := json.Marshal(n.rateLimitRecord())
	if err != nil {
		return err
	}
	_, err = bucket.Put(ctx, rateLimitKey, value)
	return err
}

func (n *ensureOperation) ensureConsumers(ctx context.Context, stream jetstream.Stream) error {
	infos, err := listConsumers(ctx, stream)
	if err != nil {
		return err
	}
	for _, want := range n.consumerConfigs(infos) {
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
			n.reportMissingObject("consumer " + want.Name + " of " + streamName(n.Name))
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
	if n.reportDrift(consumerDrift(n.Name, &want, &found.Config)) {
		if _, err := stream.UpdateConsumer(ctx, want); err != nil {
			return err
		}
	}
	if n.reportDrift(pauseDrift(n.Name, want.Name, n.Paused, found.Paused)) {
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

func setConsumerPaused(ctx context.Context, stream jetstream.Stream, consumer string, paused bool) error {
	if paused {
		_, err := stream.PauseConsumer(ctx, consumer, indefinitePauseTime)
		return err
	}
	_, err := stream.ResumeConsumer(ctx, consumer)
	return err
}

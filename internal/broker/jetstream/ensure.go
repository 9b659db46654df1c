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
	// isApplied: the stream has the hash of this configuration, and this owner.
	isApplied bool
	// streams are those of the queue that are known to exist, the one with the messages first.
	streams []*jetstream.StreamInfo
	storage broker.StorageState
	// bucket is the stream of the bucket; nil if it was not read yet.
	bucket jetstream.Stream
	// isUnanswered: the server did not answer a change of the storage in time.
	isUnanswered bool
}

func (n *ensureOperation) run(ctx context.Context) error {
	stream, err := n.getOrCreateStream(ctx)
	if err != nil {
		return err
	}
	n.streams = append(n.streams, stream.CachedInfo())
	config := stream.CachedInfo().Config
	n.isApplied = config.Metadata[metaApplied] == n.configHash() && ownerFromMetadata(config.Metadata) == n.Owner
	n.result.Updated = !n.isApplied && !n.result.Created
	n.applyChanges = n.result.Created || n.result.Updated || n.Drift == broker.DriftCorrect
	n.result.Enforcement = n.enforcement(n.QueueConfig, n.allowSchedules)

	for _, part := range []func(context.Context) error{
		n.ensureStream,
		n.ensureDeadStream,
		n.ensureRateLimit,
		func(ctx context.Context) error { return n.ensureConsumers(ctx, stream) },
		n.ensureResults,
		n.ensureStorage,
	} {
		if err := part(ctx); err != nil {
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
	if isNotFound(err) && !n.MustExist {
		n.result.Created = true
		created := n.streamConfig(jetstream.StreamConfig{Name: streamName(n.Name), Retention: jetstream.WorkQueuePolicy}, "")
		stream, err = n.createStream(ctx, created)
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

func (n *ensureOperation) ensureStream(ctx context.Context) error {
	found := n.streams[0].Config
	want := n.streamConfig(found, "")
	if !n.reportDrift(streamDrift(&want, &found)) {
		return nil
	}
	return n.updateStream(ctx, 0, want)
}

// updateStream updates one of the streams.
func (n *ensureOperation) updateStream(ctx context.Context, number int, config jetstream.StreamConfig) error {
	updated, err := n.js.UpdateStream(ctx, config)
	if err == nil {
		n.streams[number] = updated.CachedInfo()
	}
	return err
}

// addStream adds a stream other than that of the jobs, and returns its configuration, whose retention must be by limits.
func (n *ensureOperation) addStream(stream jetstream.Stream) (jetstream.StreamConfig, error) {
	n.streams = append(n.streams, stream.CachedInfo())
	found := stream.CachedInfo().Config
	if found.Retention != jetstream.LimitsPolicy {
		return found, immutableSettingError("the stream "+found.Name, "retention", jetstream.LimitsPolicy, found.Retention)
	}
	return found, nil
}

func (n *ensureOperation) ensureDeadStream(ctx context.Context) error {
	stream, err := n.js.Stream(ctx, deadStreamName(n.Name))
	if isNotFound(err) {
		n.reportMissingObject("stream " + deadStreamName(n.Name))
		created := n.deadStreamConfig(jetstream.StreamConfig{Name: deadStreamName(n.Name), Retention: jetstream.LimitsPolicy})
		stream, err = n.createStream(ctx, created)
	}
	if err != nil {
		return err
	}
	found, err := n.addStream(stream)
	if err != nil {
		return err
	}
	want := n.deadStreamConfig(found)
	if n.reportDrift(streamDrift(&want, &found)) {
		if err := n.updateStream(ctx, len(n.streams)-1, want); err != nil {
			return err
		}
	}
	if !n.result.Updated {
		return nil
	}
	// Versions before v0.2 stored advisories here, which would count as dead letters.
	return stream.Purge(ctx, jetstream.WithPurgeSubject(maxDeliveriesSubject(n.Name)))
}

// reportMissingObject reports an object that someone deleted. It is created again even with
// drift policy Warn: the queue does not work without it.
func (n *ensureOperation) reportMissingObject(object string) {
	n.result.Drift = append(n.result.Drift, broker.SettingDifference{Object: object, Setting: "exists", Want: "true", Found: "false"})
}

func (n *ensureOperation) ensureRateLimit(ctx context.Context) error {
	var (
		created jetstream.KeyValue
		raw     []byte
	)
	bucket, err := n.js.Stream(ctx, bucketStreamName(n.Name))
	switch {
	case isNotFound(err):
		n.reportMissingObject("bucket " + bucketName(n.Name))
		// Do not read a new bucket: other servers may not know yet where it is.
		created, err = n.createBucket(ctx, jetstream.KeyValueConfig{Bucket: bucketName(n.Name), History: 1, LimitMarkerTTL: time.Minute})
	case err == nil:
		n.bucket = bucket
		raw, err = readRateLimit(ctx, bucket, n.Name)
	}
	if err != nil {
		return err
	}
	if !n.reportDrift(rateLimitDrift(n.Name, n.rateLimitRecord(), raw)) {
		return nil
	}
	return n.putRateLimit(ctx, created)
}

// readRateLimit returns nil if the bucket has no rate limit. It reads the stream of the bucket, because to open the
// bucket would be one more request of each comparison.
func readRateLimit(ctx context.Context, bucket jetstream.Stream, queue string) ([]byte, error) {
	message, err := bucket.GetLastMsgForSubject(ctx, storedKeySubject(queue, rateLimitKey))
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if message.Header.Get("KV-Operation") != "" || message.Header.Get(jetstream.MarkerReasonHeader) != "" {
		return nil, nil // deleted
	}
	return message.Data, nil
}

// putRateLimit stores the rate limit in the bucket, which it opens if it was not created.
func (n *ensureOperation) putRateLimit(ctx context.Context, bucket jetstream.KeyValue) (err error) {
	if bucket == nil {
		if bucket, err = n.js.KeyValue(ctx, bucketName(n.Name)); err != nil {
			return err
		}
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
	c := &settingComparison{object: "consumer " + want.Name + " of " + streamName(n.Name)}
	c.compareSetting("paused", n.Paused, found.Paused)
	var err error
	switch {
	case !n.reportDrift(c.differences):
	case n.Paused:
		_, err = stream.PauseConsumer(ctx, want.Name, indefinitePauseTime)
	default:
		_, err = stream.ResumeConsumer(ctx, want.Name)
	}
	return err
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

package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
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
	// streams of the queue that are known to exist. The first stream has the messages.
	streams []*jetstream.StreamInfo
	storage broker.StorageState
	// bucket is the stream of the bucket; nil if it was not read.
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
	n.result.Enforcement = n.enforcement(n.QueueConfig)

	if n.delays {
		created, err := n.ensureDelayedStream(ctx)
		if err == nil && created && len(config.Sources) > 0 {
			// The server does not look for a new stream, or a new consumer, for minutes, unless the source is new too. Without the hash, the
			// next call adds the source after an interruption.
			config.Sources, config.Metadata, n.isApplied = nil, maps.Clone(config.Metadata), false
			delete(config.Metadata, metaApplied)
			err = n.updateStream(ctx, 0, config)
		}
		if err == nil && created {
			config.Sources = n.streamConfig(config).Sources
			err = n.updateStream(ctx, 0, config)
		}
		if err != nil {
			return err
		}
	}
	want := n.streamConfig(config)
	if n.reportDrift(streamDrift(&want, &config)) {
		if err := n.updateStream(ctx, 0, want); err != nil {
			return err
		}
	}
	for _, part := range []func(context.Context) error{
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
	if n.domain == "" && !n.nc.IsConnected() {
		return nil, nats.ErrDisconnected // the version of the server is unknown
	}
	n.delays = n.supportsDelays()
	stream, err := n.js.Stream(ctx, streamName(n.Name))
	if isNotFound(err) && !n.MustExist {
		n.result.Created = true
		created := n.streamConfig(jetstream.StreamConfig{Name: streamName(n.Name), Retention: jetstream.WorkQueuePolicy})
		created.Sources = nil // of a stream that does not exist yet
		stream, err = n.createStream(ctx, created)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			// Another client created the stream at the same time, and may be its owner.
			n.result.Created = false
			stream, err = n.js.Stream(ctx, streamName(n.Name))
		}
	}
	if err != nil {
		return nil, err
	}
	config := stream.CachedInfo().Config
	if err := n.CheckOwnership(ownerFromMetadata(config.Metadata)); err != nil {
		return nil, err
	}
	if config.Retention != jetstream.WorkQueuePolicy {
		return nil, immutableSettingError("the stream "+config.Name, "retention", jetstream.WorkQueuePolicy, config.Retention)
	}
	if config.AllowMsgSchedules { // the server cannot disable schedules once a stream has them
		return nil, broker.Errorf(broker.ClassInvalid, "a version before v0.1 created the stream %s, in which each producer can erase the queue: "+
			"workers still receive its messages; set spec.deletionPolicy of the Queue to Drain, delete the Queue, and create it again", config.Name)
	}
	n.delays = n.delays || len(config.Sources) > 0 // one of several servers can be older during an upgrade
	return stream, nil
}

// reportDrift adds differences to the result. It reports whether they have to be corrected.
func (n *ensureOperation) reportDrift(drift []broker.SettingDifference) bool {
	n.result.Drift = append(n.result.Drift, drift...)
	return len(drift) > 0 && n.applyChanges
}

func (n *ensureOperation) updateStream(ctx context.Context, number int, config jetstream.StreamConfig) error {
	updated, err := n.js.UpdateStream(ctx, config)
	if err == nil {
		n.streams[number] = updated.CachedInfo()
	}
	return err
}

// ensureLimitsStream creates or corrects a stream other than that of the jobs. Object is what is missing if it does not exist,
// initial has the settings that never change.
func (n *ensureOperation) ensureLimitsStream(
	ctx context.Context, object string, initial jetstream.StreamConfig, configure func(jetstream.StreamConfig) jetstream.StreamConfig,
) (jetstream.Stream, error) {
	stream, err := n.js.Stream(ctx, initial.Name)
	if isNotFound(err) {
		n.reportMissingObject(object)
		stream, err = n.createStream(ctx, configure(initial))
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			stream, err = n.js.Stream(ctx, initial.Name)
		}
	}
	if err != nil {
		return nil, err
	}
	n.streams = append(n.streams, stream.CachedInfo())
	found := stream.CachedInfo().Config
	if found.Retention != initial.Retention {
		return nil, immutableSettingError("the stream "+found.Name, "retention", initial.Retention, found.Retention)
	}
	want := configure(found)
	if n.reportDrift(streamDrift(&want, &found)) {
		err = n.updateStream(ctx, len(n.streams)-1, want)
	}
	return stream, err
}

// ensureDelayedStream creates or corrects the stream of delayed messages and the consumer that moves those that are due. The numbers in a
// new stream are greater than those in any earlier stream, because the server skips messages that it believes to have moved before.
func (n *ensureOperation) ensureDelayedStream(ctx context.Context) (created bool, err error) {
	name := delayedStreamName(n.Name)
	stream, err := n.ensureLimitsStream(ctx, "stream "+name, jetstream.StreamConfig{
		Name: name, Retention: jetstream.WorkQueuePolicy, FirstSeq: uint64(time.Now().UnixMicro()),
	}, n.delayedStreamConfig)
	if err != nil {
		return false, err
	}
	if err := n.ensureGuard(ctx); err != nil {
		return false, err
	}
	consumer, err := stream.PushConsumer(ctx, transferConsumer)
	if isNotFound(err) {
		n.reportMissingObject("consumer " + transferConsumer + " of " + name)
		_, err = stream.CreatePushConsumer(ctx, n.transferConfig(jetstream.ConsumerConfig{}))
		return true, err
	}
	if err != nil {
		return false, err
	}
	found := consumer.CachedInfo().Config
	if found.AckPolicy != jetstream.AckFlowControlPolicy {
		return false, immutableSettingError("the consumer "+transferConsumer+" of "+name, "ack_policy", jetstream.AckFlowControlPolicy, found.AckPolicy)
	}
	want := n.transferConfig(found)
	if n.reportDrift(transferDrift(&want, &found, n.Name)) {
		_, err = stream.UpdatePushConsumer(ctx, want)
	}
	return false, err
}

// ensureGuard stores the guard in the stream of delayed messages, which is the last of the streams. A producer who may delay jobs can erase
// the stream with the header Nats-Rollup, and with it the guard. The producer can store a message with the subject of the guard, but none
// with a number as low.
func (n *ensureOperation) ensureGuard(ctx context.Context) error {
	number := len(n.streams) - 1
	config := n.streams[number].Config
	if hasGuard(config.Metadata, &n.streams[number].State) {
		return nil
	}
	n.result.ErasedDelayed = config.Metadata[metaGuard] != ""
	stored, err := n.js.PublishMsg(ctx, &nats.Msg{Subject: guardSubject(n.Name), Header: nats.Header{jetstream.MsgTTLHeader: {"never"}}},
		jetstream.WithRetryAttempts(guardAttempts))
	if err != nil {
		return err
	}
	metadata := maps.Clone(config.Metadata)
	if metadata == nil {
		metadata = map[string]string{}
	}
	metadata[metaGuard] = strconv.FormatUint(stored.Sequence, 10)
	config.Metadata = metadata
	return n.updateStream(ctx, number, config)
}

func hasGuard(metadata map[string]string, state *jetstream.StreamState) bool {
	guard, err := strconv.ParseUint(metadata[metaGuard], 10, 64)
	return err == nil && state.FirstSeq <= guard && state.Msgs > 0
}

// guardAttempts: a new stream has no responder on each server of a cluster for a moment.
const guardAttempts = 20

func (n *ensureOperation) ensureDeadStream(ctx context.Context) error {
	name := deadStreamName(n.Name)
	stream, err := n.ensureLimitsStream(ctx, "stream "+name, jetstream.StreamConfig{Name: name}, n.deadStreamConfig)
	if err != nil || !n.result.Updated {
		return err
	}
	// Versions before v0.2 stored advisories in this stream, which would count as dead letters.
	return stream.Purge(ctx, jetstream.WithPurgeSubject(maxDeliveriesSubject(n.Name)))
}

// ensureResults creates, corrects or deletes the bucket with the states of jobs. A queue without this bucket costs no request,
// unless its configuration has changed.
func (n *ensureOperation) ensureResults(ctx context.Context) error {
	if n.Results.IsEnabled() {
		initial := jetstream.StreamConfig{Name: jobsStreamName(n.Name)}
		_, err := n.ensureLimitsStream(ctx, "bucket "+jobsBucketName(n.Name), initial, n.jobsStreamConfig)
		return err
	}
	if n.isApplied || n.result.Created {
		return nil
	}
	err := n.js.DeleteStream(ctx, jobsStreamName(n.Name))
	if isNotFound(err) {
		return nil
	}
	return err
}

// reportMissingObject reports an object that someone deleted. The object is created again even with the drift policy Warn, because
// the queue does not work without it.
func (n *ensureOperation) reportMissingObject(object string) {
	n.result.Drift = append(n.result.Drift, broker.SettingDifference{Object: object, Setting: "exists", Want: "true", Found: "false"})
}

func (n *ensureOperation) ensureRateLimit(ctx context.Context) error {
	var (
		opened jetstream.KeyValue // nil until it is created or needed
		raw    []byte
	)
	bucket, err := n.js.Stream(ctx, bucketStreamName(n.Name))
	switch {
	case isNotFound(err):
		n.reportMissingObject("bucket " + bucketName(n.Name))
		// Do not read a new bucket, which other servers may not have yet.
		err = n.createWithReplicas(func(replicas int) error {
			opened, err = n.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
				Bucket: bucketName(n.Name), History: 1, LimitMarkerTTL: time.Minute,
				Storage: n.storageType(), Placement: n.placement(), Replicas: replicas,
			})
			return err
		})
	case err == nil:
		n.bucket = bucket
		raw, err = readRateLimit(ctx, bucket, n.Name)
	}
	if err != nil {
		return err
	}
	want, found := rateLimitRecord{}, rateLimitRecord{}
	if r := n.RateLimit; r != nil {
		want = rateLimitRecord{r.Limit, r.Per, r.Burst}
	}
	c := &settingComparison{object: "key " + rateLimitKey + " of bucket " + bucketName(n.Name)}
	if len(raw) > 0 && json.Unmarshal(raw, &found) != nil {
		c.compareSetting("limit", want, "not a limit")
	} else {
		c.compareSetting("limit", want, found)
	}
	if !n.reportDrift(c.differences) {
		return nil
	}
	value, err := json.Marshal(want)
	if err == nil && opened == nil {
		opened, err = n.js.KeyValue(ctx, bucketName(n.Name))
	}
	if err == nil {
		_, err = opened.Put(ctx, rateLimitKey, value)
	}
	return err
}

// readRateLimit returns nil if the bucket has no rate limit. It reads the stream of the bucket, because opening the bucket would add
// a request to each comparison.
func readRateLimit(ctx context.Context, bucket jetstream.Stream, queue string) ([]byte, error) {
	message, err := bucket.GetLastMsgForSubject(ctx, storedKeySubject(queue, rateLimitKey))
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if message.Header.Get(keyOperationHeader) != "" || message.Header.Get(jetstream.MarkerReasonHeader) != "" {
		return nil, nil // deleted
	}
	return message.Data, nil
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
	// Consumers of priorities that are no longer configured are deleted once they are empty. Until then, workers take their messages.
	for name, info := range infos {
		isConfigured := slices.ContainsFunc(n.Priorities, func(p broker.Priority) bool { return p.Name == name })
		if isConfigured || info.Config.Metadata[metaWeight] == "" {
			continue
		}
		if info.NumPending > 0 || info.NumAckPending > 0 {
			n.result.RetiringPriorities = append(n.result.RetiringPriorities, name)
			want := info.Config
			want.AckWait = n.Lease
			if err := n.ensureConsumer(ctx, stream, want, info); err != nil {
				return err
			}
			continue
		}
		if err := stream.DeleteConsumer(ctx, name); err != nil && !isNotFound(err) {
			return err
		}
	}
	slices.Sort(n.result.RetiringPriorities)
	return nil
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

func listConsumers(ctx context.Context, stream jetstream.Stream) (map[string]*jetstream.ConsumerInfo, error) {
	all := map[string]*jetstream.ConsumerInfo{}
	lister := stream.ListConsumers(ctx)
	for info := range lister.Info() {
		all[info.Name] = info
	}
	return all, lister.Err()
}

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

// EnsureQueue makes the queue what it is to be, or tells in what it is not.
func (e *Engine) EnsureQueue(ctx context.Context, queue broker.QueueConfig) (broker.EnsureResult, error) {
	if err := queue.Validate(); err != nil {
		return broker.EnsureResult{}, &broker.ClassifiedError{Class: broker.ClassInvalid, Err: err}
	}
	n := &ensuring{Engine: e, wanted: wanted{QueueConfig: &queue}}
	err := n.run(ctx)
	return n.outcome, e.classify("ensuring the queue "+queue.Name, err)
}

// ensuring is one call of Ensure.
type ensuring struct {
	*Engine
	wanted

	outcome broker.EnsureResult
	// write: what is not as it is to be is changed.
	write bool
}

func (n *ensuring) run(ctx context.Context) error {
	stream, err := n.stream(ctx)
	if err != nil {
		return err
	}
	config := stream.CachedInfo().Config
	fingerprint, err := n.fingerprint()
	if err != nil {
		return err
	}
	n.outcome.Updated = config.Metadata[metaApplied] != fingerprint && !n.outcome.Created
	n.write = n.outcome.Created || n.outcome.Updated || n.Drift == broker.DriftCorrect
	n.outcome.Enforcement = n.enforcement(n.QueueConfig, n.scheduling)

	for _, part := range []func(context.Context) error{
		func(ctx context.Context) error { return n.ensureStream(ctx, config) },
		n.ensureDeadStream,
		n.ensureLimit,
		func(ctx context.Context) error { return n.ensureConsumers(ctx, stream) },
	} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	if config.Metadata[metaApplied] != fingerprint {
		// Only now: an Ensure that broke off is to be done again, not taken for drift.
		if _, err := n.js.UpdateStream(ctx, n.wanted.stream(config, fingerprint)); err != nil {
			return err
		}
	}
	n.report()
	return nil
}

// report tells only of drift what differs from what had been carried out.
func (n *ensuring) report() {
	if n.outcome.Created || n.outcome.Updated {
		n.outcome.Drift = nil
	}
	n.outcome.Corrected = n.write && len(n.outcome.Drift) > 0
}

// stream is the queue's, made if it is not there, once it is sure whose it is.
func (n *ensuring) stream(ctx context.Context) (jetstream.Stream, error) {
	n.scheduling = n.MaxBacklog == 0 && n.schedules()
	stream, err := n.js.Stream(ctx, streamOf(n.Name))
	if missing(err) {
		n.outcome.Created = true
		stream, err = n.js.CreateStream(ctx, n.newStream())
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			// Somebody was faster: perhaps with a right to it.
			n.outcome.Created = false
			stream, err = n.js.Stream(ctx, streamOf(n.Name))
		}
	}
	if err != nil {
		return nil, err
	}
	config := stream.CachedInfo().Config
	if config.Retention != jetstream.WorkQueuePolicy {
		return nil, unchangeable("the stream "+config.Name, "retention", jetstream.WorkQueuePolicy, config.Retention)
	}
	// A stream that once could deliver later cannot be had to refuse producers.
	n.scheduling = n.scheduling || config.AllowMsgSchedules
	return stream, n.claim(ownerOf(config.Metadata))
}

// claim tells whether the queue may be taken from who has it.
func (n *ensuring) claim(has broker.QueueOwner) error {
	switch {
	case has.UID == "", has.UID == n.Owner.UID, has.UID == n.ReplacesOwnerUID, n.Owner.HasPrecedenceOver(has):
		return nil
	}
	return &broker.OwnerConflictError{Queue: n.Name, Owner: has}
}

func (n *ensuring) ensureStream(ctx context.Context, found jetstream.StreamConfig) error {
	want := n.wanted.stream(found, "")
	drift := streamDrift(&want, &found)
	if len(drift) == 0 {
		return nil
	}
	n.outcome.Drift = append(n.outcome.Drift, drift...)
	if !n.write {
		return nil
	}
	_, err := n.js.UpdateStream(ctx, want)
	return err
}

func (n *ensuring) ensureDeadStream(ctx context.Context) error {
	stream, err := n.js.Stream(ctx, deadStreamOf(n.Name))
	if missing(err) {
		n.lost("stream "+deadStreamOf(n.Name), "there")
		_, err = n.js.CreateStream(ctx, n.newDeadStream())
		return err
	}
	if err != nil {
		return err
	}
	found := stream.CachedInfo().Config
	if found.Retention != jetstream.LimitsPolicy {
		return unchangeable("the stream "+found.Name, "retention", jetstream.LimitsPolicy, found.Retention)
	}
	want := n.deadStream(found)
	drift := streamDrift(&want, &found)
	if len(drift) == 0 {
		return nil
	}
	n.outcome.Drift = append(n.outcome.Drift, drift...)
	if !n.write {
		return nil
	}
	_, err = n.js.UpdateStream(ctx, want)
	return err
}

// lost tells of an object that was there once. It is made again even where drift is only
// warned of: without it the queue does not work.
func (n *ensuring) lost(object, setting string) {
	n.outcome.Drift = append(n.outcome.Drift, broker.SettingDifference{Object: object, Setting: setting, Want: "true", Found: "false"})
}

func (n *ensuring) ensureLimit(ctx context.Context) error {
	bucket, err := n.bucket(ctx, n.Name)
	if missing(err) {
		n.lost("bucket "+bucketOf(n.Name), "there")
		bucket, err = n.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: bucketOf(n.Name), History: 1, LimitMarkerTTL: time.Minute, Replicas: createdReplicas,
		})
	}
	if err != nil {
		return err
	}
	var raw []byte
	entry, err := bucket.Get(ctx, limitKey)
	switch {
	case err == nil:
		raw = entry.Value()
	case !missing(err):
		return err
	}
	drift := limitDrift(n.Name, n.limit(), raw)
	if len(drift) == 0 {
		return nil
	}
	n.outcome.Drift = append(n.outcome.Drift, drift...)
	if !n.write {
		return nil
	}
	value, err := json.Marshal(n.limit())
	if err != nil {
		return err
	}
	_, err = bucket.Put(ctx, limitKey, value)
	return err
}

func (e *Engine) bucket(ctx context.Context, queue string) (jetstream.KeyValue, error) {
	return e.js.KeyValue(ctx, bucketOf(queue))
}

func (n *ensuring) ensureConsumers(ctx context.Context, stream jetstream.Stream) error {
	infos, err := consumersOf(ctx, stream)
	if err != nil {
		return err
	}
	found := map[string]jetstream.ConsumerConfig{}
	for name, info := range infos {
		found[name] = info.Config
	}
	for _, want := range n.consumers(found) {
		if err := n.ensureConsumer(ctx, stream, want, infos[want.Name]); err != nil {
			return err
		}
	}
	return n.retire(ctx, stream, infos)
}

// ensureConsumer is told what is there, if anything is.
func (n *ensuring) ensureConsumer(
	ctx context.Context, stream jetstream.Stream, want jetstream.ConsumerConfig, found *jetstream.ConsumerInfo,
) error {
	if found == nil {
		if !n.outcome.Created {
			n.lost("consumer "+want.Name+" of "+streamOf(n.Name), "there")
		}
		if n.Paused {
			want.PauseUntil = &pausedUntil
		}
		_, err := stream.CreateConsumer(ctx, want)
		return err
	}
	if found.Config.AckPolicy != jetstream.AckExplicitPolicy {
		return unchangeable("the consumer "+want.Name+" of "+streamOf(n.Name), "ack_policy", want.AckPolicy, found.Config.AckPolicy)
	}
	drift := consumerDrift(n.Name, &want, &found.Config)
	paused := pauseDrift(n.Name, want.Name, n.Paused, found.Paused)
	n.outcome.Drift = append(append(n.outcome.Drift, drift...), paused...)
	if len(drift) > 0 && n.write {
		if _, err := stream.UpdateConsumer(ctx, want); err != nil {
			return err
		}
	}
	if len(paused) > 0 && n.write {
		return pause(ctx, stream, want.Name, n.Paused)
	}
	return nil
}

// retire removes the consumers of priorities that the queue has no more, once they are
// empty. Nothing can be sent to them any more.
func (n *ensuring) retire(ctx context.Context, stream jetstream.Stream, infos map[string]*jetstream.ConsumerInfo) error {
	for name, info := range infos {
		still := slices.ContainsFunc(n.Priorities, func(p broker.Priority) bool { return p.Name == name })
		if still || info.Config.Metadata[metaWeight] == "" {
			continue
		}
		if info.NumPending > 0 || info.NumAckPending > 0 || !n.write {
			n.outcome.RetiringPriorities = append(n.outcome.RetiringPriorities, name)
			continue
		}
		if err := stream.DeleteConsumer(ctx, name); err != nil && !missing(err) {
			return err
		}
	}
	slices.Sort(n.outcome.RetiringPriorities)
	return nil
}

// consumersOf a stream, by name.
func consumersOf(ctx context.Context, stream jetstream.Stream) (map[string]*jetstream.ConsumerInfo, error) {
	all := map[string]*jetstream.ConsumerInfo{}
	lister := stream.ListConsumers(ctx)
	for info := range lister.Info() {
		all[info.Name] = info
	}
	return all, lister.Err()
}

// SetPaused stops messages from being given to workers, or lets them.
func (e *Engine) SetPaused(ctx context.Context, queue string, paused bool) error {
	err := func() error {
		stream, err := e.js.Stream(ctx, streamOf(queue))
		if err != nil {
			return err
		}
		infos, err := consumersOf(ctx, stream)
		if err != nil {
			return err
		}
		for name, info := range infos {
			if info.Config.Metadata[metaWeight] == "" || info.Paused == paused {
				continue
			}
			if err := pause(ctx, stream, name, paused); err != nil {
				return err
			}
		}
		return nil
	}()
	return e.classify(fmt.Sprintf("setting the pause of the queue %s to %t", queue, paused), err)
}

func pause(ctx context.Context, stream jetstream.Stream, consumer string, paused bool) error {
	if paused {
		_, err := stream.PauseConsumer(ctx, consumer, pausedUntil)
		return err
	}
	_, err := stream.ResumeConsumer(ctx, consumer)
	return err
}

package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// refusalCodes are the errors of a server that cannot store a stream as requested. A retry succeeds only after someone has changed
// the servers or the limits of the account.
var refusalCodes = []jetstream.ErrorCode{
	10002, // resource limits exceeded for account
	10005, // no suitable peers for placement
	10023, // insufficient resources
	10027, // maximum number of streams reached, which can be limited for a number of replicas
	10028, // insufficient memory resources available
	10047, // insufficient storage resources available
	10074, // replicas > 1 not supported in non-clustered mode
	10113, // account requires a stream config to have max bytes set
	10120, // no JetStream default or applicable tiered limit present
}

// movingCodes are the errors of a server that still carries out an earlier change of the servers of a stream.
var movingCodes = []jetstream.ErrorCode{
	10124, // stream move already in progress
	10226, // stream reconfiguration already in progress
}

func hasCode(err error, codes []jetstream.ErrorCode) bool {
	api := (*jetstream.APIError)(nil)
	return errors.As(err, &api) && slices.Contains(codes, api.ErrorCode)
}

func (w *desiredQueue) storageType() jetstream.StorageType {
	if w.Storage.Type == broker.StorageMemory {
		return jetstream.MemoryStorage
	}
	return jetstream.FileStorage
}

// placement returns nil instead of an empty placement, which the server does not store.
func (w *desiredQueue) placement() *jetstream.Placement {
	p := w.Storage.Placement
	if p == nil || p.Cluster == "" && len(p.Tags) == 0 {
		return nil
	}
	return &jetstream.Placement{Cluster: p.Cluster, Tags: p.Tags}
}

func (n *ensureOperation) createStream(ctx context.Context, config jetstream.StreamConfig) (created jetstream.Stream, err error) {
	config.Storage, config.Placement = n.storageType(), n.placement()
	err = n.createWithReplicas(func(replicas int) error {
		config.Replicas = replicas
		created, err = n.js.CreateStream(ctx, config)
		return err
	})
	return created, err
}

// createWithReplicas calls create with the wanted number of replicas. If the server refuses it, createWithReplicas calls create with
// the number of replicas that the queue has meanwhile.
func (n *ensureOperation) createWithReplicas(create func(replicas int) error) error {
	wanted, instead := n.Storage.WantedReplicas(), 0 // 0: the queue is not created
	switch {
	case !n.Storage.IsRequired():
		instead = 1
	case len(n.streams) > 0:
		instead = n.streams[0].Config.Replicas
	}
	if n.storage.Refusal != "" && instead > 0 {
		wanted = instead // this call of EnsureQueue has met the refusal of the wanted number
	}
	err := create(wanted)
	if !hasCode(err, refusalCodes) {
		return err
	}
	refused := n.refusal(wanted, err)
	if instead == 0 || instead == wanted {
		return refused
	}
	if err := create(instead); err != nil {
		if hasCode(err, refusalCodes) {
			err = n.refusal(instead, err)
		}
		return err
	}
	n.recordRefusal(refused, n.Storage.IsRequired())
	return nil
}

// refusal returns the error about a server that does not store a stream as requested. It does not name the stream, because the
// message must not change if the server later refuses the same for another stream.
func (n *ensureOperation) refusal(replicas int, err error) error {
	return broker.Errorf(broker.ClassInvalid, "the server refuses %d replicas; add servers to its cluster, or change spec.storage: %w",
		replicas, n.credentials.Conceal(err, true))
}

func (n *ensureOperation) recordRefusal(refused error, isRequired bool) {
	n.storage.Refusal, n.storage.RefusesConfig = broker.TruncateText(refused.Error()), isRequired
}

// storageTimeout bounds a change of the storage of a stream. The server carries out the change even if it answers later.
const storageTimeout = 3 * time.Second

// ensureStorage corrects the storage of all streams of the queue, the stream with the messages last. Only required settings can be
// drift: a stream may have fewer replicas than the default because the server refused more.
func (n *ensureOperation) ensureStorage(ctx context.Context) error {
	if n.bucket == nil {
		var err error
		if n.bucket, err = n.js.Stream(ctx, bucketStreamName(n.Name)); err != nil {
			return err
		}
	}
	n.streams = append(n.streams, n.bucket.CachedInfo())
	for number, stream := range slices.Backward(n.streams) {
		if want, found := n.storageType(), stream.Config.Storage; found != want {
			return immutableSettingError("the stream "+stream.Config.Name, "storage", want, found)
		}
		if err := n.ensureStreamStorage(ctx, number); err != nil {
			return err
		}
	}
	state := &n.storage // with the replicas of the worst stream
	for number, stream := range n.streams {
		configured, current, offline := replicasOf(stream)
		if number == 0 {
			state.Replicas, state.CurrentReplicas = configured, current
		}
		state.Replicas, state.CurrentReplicas = min(state.Replicas, configured), min(state.CurrentReplicas, current)
		state.OfflineReplicas = max(state.OfflineReplicas, offline)
	}
	n.result.Storage = new(n.storage) // a copy: callers keep it, and must not keep the streams
	return nil
}

// ensureStreamStorage corrects the storage of a stream, and stores the metadata of the first stream in the same request: after a
// change of the storage, the server may not answer another update for seconds.
func (n *ensureOperation) ensureStreamStorage(ctx context.Context, number int) error {
	config := n.streams[number].Config
	change, isRequired := n.changeStorage(&config)
	switch {
	case change == nil, n.storage.Refusal != "", n.isUnanswered:
	case isRequired && !n.applyChanges:
		n.result.Drift = append(n.result.Drift, *change)
	case isRequired, n.Drift == broker.DriftCorrect: // a default is no change of the configuration
		// The server does not accept changes of the placement and of the replicas at once.
		n.storage.IsMoving = n.storage.IsMoving || !n.Storage.AcceptsReplicas(config.Replicas)
		config.Metadata = n.finalMetadata(number)
		if changed, err := n.requestChange(ctx, number, config, isRequired); changed || err != nil {
			n.result.Drift = append(n.result.Drift, *change)
			return err
		}
	}
	if config = n.streams[number].Config; number > 0 || n.isApplied || n.isUnanswered {
		return nil
	}
	config.Metadata = n.finalMetadata(number)
	return n.updateStream(ctx, number, config)
}

// requestChange reports whether the server accepted a change of the storage. A change that it refuses for one stream of a queue is
// not requested for the other streams.
func (n *ensureOperation) requestChange(ctx context.Context, number int, config jetstream.StreamConfig, isRequired bool) (bool, error) {
	requesting, cancel := context.WithTimeout(ctx, storageTimeout)
	defer cancel()
	err := n.updateStream(requesting, number, config)
	switch {
	case hasCode(err, refusalCodes):
		n.recordRefusal(n.refusal(config.Replicas, err), isRequired)
		n.storage.IsMoving = false
	case hasCode(err, movingCodes):
		n.storage.IsMoving = true
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		n.storage.IsMoving, n.isUnanswered = true, true
	default:
		return err == nil, err
	}
	return false, nil
}

// finalMetadata returns the metadata of a stream after all its settings were applied. The first stream has the hash of the
// configuration, unless changes are left to do: without the hash, the next call applies the configuration again, and the remaining
// differences are not drift.
func (n *ensureOperation) finalMetadata(number int) map[string]string {
	found := n.streams[number].Config.Metadata
	if number > 0 || n.isApplied {
		return found
	}
	metadata := withOwner(found, n.Owner)
	metadata[metaApplied] = n.configHash()
	if n.storage.RefusesConfig || n.storage.IsMoving {
		delete(metadata, metaApplied)
	}
	return metadata
}

// changeStorage corrects the placement in the configuration of a stream, or else the replicas, whose servers depend on the placement.
// It returns nil if both are correct, and whether the setting is required.
func (n *ensureOperation) changeStorage(config *jetstream.StreamConfig) (change *broker.SettingDifference, isRequired bool) {
	object := "stream " + config.Name
	if want, found := formatPlacement(n.placement()), formatPlacement(config.Placement); n.Storage.Placement != nil && want != found {
		config.Placement = n.placement()
		return &broker.SettingDifference{Object: object, Setting: "placement", Want: want, Found: found}, true
	}
	want, found := n.Storage.WantedReplicas(), config.Replicas
	if n.Storage.AcceptsReplicas(found) {
		return nil, false
	}
	config.Replicas = want
	return &broker.SettingDifference{
		Object: object, Setting: "num_replicas", Want: strconv.Itoa(want), Found: strconv.Itoa(found),
	}, n.Storage.IsRequired()
}

func formatPlacement(p *jetstream.Placement) string {
	if p == nil || p.Cluster == "" && len(p.Tags) == 0 {
		return "none"
	}
	return fmt.Sprintf("cluster %q, tags %q", p.Cluster, strings.Join(slices.Sorted(slices.Values(p.Tags)), " "))
}

// replicasOf returns the number of configured, current and offline replicas of a stream. The numbers are bounded, because the server
// may be hostile.
func replicasOf(stream *jetstream.StreamInfo) (configured, current, offline int) {
	configured = min(max(stream.Config.Replicas, 0), broker.MaxReplicas)
	if c := stream.Cluster; c != nil {
		if c.Leader != "" {
			current++
		}
		for _, peer := range c.Replicas {
			switch {
			case peer == nil:
			case peer.Offline:
				offline++
			case peer.Current:
				current++
			}
		}
	}
	return configured, min(current, configured), min(offline, configured)
}

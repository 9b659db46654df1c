package jetstream

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// Keys of the metadata of a stream.
const (
	metaOwner        = "yardmaster.dev/owner"
	metaOwnerUID     = "yardmaster.dev/owner-uid"
	metaOwnerCluster = "yardmaster.dev/owner-cluster"
	// metaApplied is the hash of the configuration that was last applied. A setting that differs while the hash matches is drift.
	metaApplied = "yardmaster.dev/applied"
	// metaGuard is the number of the guard of the stream of delayed messages.
	metaGuard = "yardmaster.dev/guard"
	// metaWeight marks a consumer as one of the priorities of a queue.
	metaWeight = "yardmaster.dev/weight"
)

const (
	// unlimitedDeliveries: workers count attempts. A server with a limit would stop delivering a message that reaches it, and
	// keep the message in the stream without end.
	unlimitedDeliveries = -1
	// maxPullRequests is the maximum number of waiting pull requests of a consumer, one per worker. The server does not allow
	// changes of this setting.
	maxPullRequests = 4096
)

// desiredQueue is the configuration of a queue, restricted to what the server supports.
type desiredQueue struct {
	*broker.QueueConfig
	// delays: the queue has a stream of delayed messages.
	delays bool
}

// configVersion changes when a new version derives other settings from the same configuration.
const configVersion = 3

func (w *desiredQueue) configHash() string {
	return broker.HashConfig(struct {
		Queue   broker.QueueConfig
		Delays  bool
		Version int
	}{w.WithoutOwner(), w.delays, configVersion})
}

// streamConfig returns the found configuration with the desired settings. Other settings do not change, nor does the storage,
// which ensureStorage changes.
func (w *desiredQueue) streamConfig(found jetstream.StreamConfig) jetstream.StreamConfig {
	c := found
	c.Subjects = nil
	for _, p := range w.Priorities {
		c.Subjects = append(c.Subjects, readySubject(w.Name, p.Name))
	}
	c.Discard, c.MaxMsgs, c.Sources = jetstream.DiscardOld, -1, nil
	if w.MaxBacklog > 0 {
		c.Discard, c.MaxMsgs = jetstream.DiscardNew, w.MaxBacklog
	}
	c.AllowRollup = false // a producer could erase the queue with a header
	if w.delays {
		c.Sources = []*jetstream.StreamSource{{
			Name: delayedStreamName(w.Name),
			SubjectTransforms: []jetstream.SubjectTransformConfig{{
				Source: dueSubject(w.Name, "*", "*"), Destination: readySubject(w.Name, "{{wildcard(1)}}"),
			}},
			Consumer: &jetstream.StreamConsumerSource{Name: transferConsumer, DeliverSubject: transferSubject(w.Name)},
		}}
	}
	setMaxAge(&c, w.MaxAge)
	c.AllowDirect = true
	c.RePublish = &jetstream.RePublish{
		Source: readySubject(w.Name, "*"), Destination: arrivedSubject(w.Name, "{{wildcard(1)}}"), HeadersOnly: true,
	}
	c.Metadata = withOwner(found.Metadata, w.Owner)
	return c
}

// delayedStreamConfig returns the found configuration of the stream of delayed messages with the desired settings.
func (w *desiredQueue) delayedStreamConfig(found jetstream.StreamConfig) jetstream.StreamConfig {
	c := found
	c.Subjects = []string{delayedSubject(w.Name, ">"), guardSubject(w.Name)}
	for _, p := range w.Priorities {
		c.Subjects = append(c.Subjects, dueSubject(w.Name, p.Name, "*")) // no others, so that the server refuses unknown priorities
	}
	c.Discard, c.MaxMsgs = jetstream.DiscardOld, -1
	c.AllowMsgSchedules, c.AllowRollup = true, true // the server allows no schedules without rollups
	c.AllowMsgTTL = true                            // the guard never expires
	setMaxAge(&c, w.MaxAge)
	c.AllowDirect = true
	return c
}

// maxTransferring is the number of messages that the server moves before it deletes them. The stream of the queue does not remember what it
// received from another stream once workers have processed it. So after a crash, the server moves all of these messages again.
const maxTransferring = 1

// transferConfig returns the found configuration of the consumer that moves messages that are due. The server deletes a message once the
// stream of the queue has stored it.
func (w *desiredQueue) transferConfig(found jetstream.ConsumerConfig) jetstream.ConsumerConfig {
	c := found
	c.Name, c.Durable = transferConsumer, transferConsumer
	c.FilterSubject, c.DeliverSubject = dueSubject(w.Name, "*", "*"), transferSubject(w.Name)
	c.AckPolicy, c.FlowControl, c.IdleHeartbeat = jetstream.AckFlowControlPolicy, true, time.Second
	c.MaxAckPending = maxTransferring
	return c
}

const duplicateWindow = 2 * time.Minute

// setMaxAge sets the maximum age of messages. The server requires that the duplicate window is not longer.
func setMaxAge(c *jetstream.StreamConfig, age time.Duration) {
	c.MaxAge, c.Duplicates = age, duplicateWindow
	if age > 0 {
		c.Duplicates = min(age, duplicateWindow)
	}
}

func (w *desiredQueue) deadStreamConfig(found jetstream.StreamConfig) jetstream.StreamConfig {
	c := found
	c.Subjects = []string{deadLetterSubject(w.Name, ">")}
	c.Discard, c.MaxMsgs = jetstream.DiscardOld, -1
	if w.DeadLetter.MaxEntries > 0 {
		c.MaxMsgs = w.DeadLetter.MaxEntries
	}
	setMaxAge(&c, w.DeadLetter.Retention)
	c.AllowDirect = true
	return c
}

// jobsStreamConfig returns the found configuration with the settings of the bucket with the states of jobs.
func (w *desiredQueue) jobsStreamConfig(found jetstream.StreamConfig) jetstream.StreamConfig {
	c := found
	c.Subjects = []string{"$KV." + jobsBucketName(w.Name) + ".>"}
	c.MaxMsgsPerSubject = 1
	c.MaxAge, c.Duplicates = w.Results.Retention, min(w.Results.Retention, duplicateWindow)
	// Clients of buckets expect DiscardNew, with which a full bucket would keep the states of old jobs only.
	c.Discard, c.MaxBytes = jetstream.DiscardOld, w.Results.MaxBytes
	c.AllowDirect, c.AllowRollup, c.DenyDelete = true, true, true
	return c
}

func withOwner(metadata map[string]string, owner broker.QueueOwner) map[string]string {
	all := map[string]string{}
	maps.Copy(all, metadata)
	all[metaOwner], all[metaOwnerUID], all[metaOwnerCluster] = owner.Name, owner.UID, owner.Cluster
	return all
}

func ownerFromMetadata(metadata map[string]string) broker.QueueOwner {
	return broker.QueueOwner{UID: metadata[metaOwnerUID], Name: metadata[metaOwner], Cluster: metadata[metaOwnerCluster]}
}

// consumerConfigs returns the found consumers of the priorities with the desired settings.
func (w *desiredQueue) consumerConfigs(found map[string]*jetstream.ConsumerInfo) []jetstream.ConsumerConfig {
	maxAckPending := slices.Repeat([]int{-1}, len(w.Priorities)) // no limit
	if w.MaxInFlight > 0 {
		var weights []int
		for _, p := range w.Priorities {
			weights = append(weights, p.Weight)
		}
		maxAckPending = splitByWeight(w.MaxInFlight, weights)
	}
	all := make([]jetstream.ConsumerConfig, 0, len(w.Priorities))
	for i, p := range w.Priorities {
		c := jetstream.ConsumerConfig{Name: p.Name, Durable: p.Name, MaxWaiting: maxPullRequests}
		if info := found[p.Name]; info != nil {
			c = info.Config
		}
		c.FilterSubject = readySubject(w.Name, p.Name)
		c.AckPolicy = jetstream.AckExplicitPolicy
		c.AckWait = w.Lease
		c.BackOff = nil
		c.MaxDeliver = unlimitedDeliveries
		c.MaxAckPending = maxAckPending[i]
		metadata := map[string]string{}
		maps.Copy(metadata, c.Metadata)
		metadata[metaWeight] = strconv.Itoa(p.Weight)
		c.Metadata = metadata
		all = append(all, c)
	}
	return all
}

// splitByWeight divides total by weight into parts of at least 1 that are as close to the exact shares as integers allow. Total
// must be at least the number of weights.
func splitByWeight(total int, weights []int) []int {
	sum := 0
	for _, weight := range weights {
		sum += weight
	}
	parts := slices.Repeat([]int{1}, len(weights))
	for range total - len(weights) {
		// The part that is furthest below its share grows; of two, that of the more urgent priority.
		most, furthest := 0, total*weights[0]-parts[0]*sum
		for i, weight := range weights {
			if below := total*weight - parts[i]*sum; below > furthest {
				most, furthest = i, below
			}
		}
		parts[most]++
	}
	return parts
}

// indefinitePauseTime makes a pause last until it is removed.
var indefinitePauseTime = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

type rateLimitRecord struct {
	Limit int           `json:"limit"`
	Per   time.Duration `json:"per"`
	Burst int           `json:"burst"`
}

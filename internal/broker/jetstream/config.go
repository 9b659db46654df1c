package jetstream

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// The keys of what a stream's metadata tell of it.
const (
	metaOwner        = "yardmaster.dev/owner"
	metaOwnerUID     = "yardmaster.dev/owner-uid"
	metaOwnerCreated = "yardmaster.dev/owner-created"
	// metaApplied tells what the owner asked for the last time it was carried out. What
	// differs from it on the broker was changed by hand.
	metaApplied = "yardmaster.dev/applied"
	// metaWeight marks a consumer as one of a queue's priorities.
	metaWeight = "yardmaster.dev/weight"
)

const (
	// extraDeliveries is how often a message may be handed back unused before the server
	// gives up on it sooner than its attempts are over.
	extraDeliveries = 50
	// maxPullRequests is how many requests for messages may wait at a consumer: one for each
	// worker. The server takes no change of it.
	maxPullRequests = 4096
)

// desiredQueue is what a queue is to be, together with what the server lets it be.
type desiredQueue struct {
	*broker.QueueConfig
	// allowSchedules: messages can be sent that are not yet due.
	allowSchedules bool
}

// createdReplicas is the number of replicas that streams and buckets are created with.
// Administrators may change it; it is not drift.
const createdReplicas = 1

// configHash is another whenever the Queue asks for something else.
func (w *desiredQueue) configHash() (string, error) {
	asked := *w.QueueConfig
	asked.Owner, asked.ReplacesOwnerUID = broker.QueueOwner{}, ""
	raw, err := json.Marshal(struct {
		Queue      broker.QueueConfig
		Scheduling bool
	}{asked, w.allowSchedules})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8]), nil
}

// streamConfig is found as it is to be. What is not ours to say stays, such as its replicas and
// where they are.
func (w *desiredQueue) streamConfig(found jetstream.StreamConfig, applied string) jetstream.StreamConfig {
	c := found
	c.Subjects = nil
	for _, p := range w.Priorities {
		c.Subjects = append(c.Subjects, readySubject(w.Name, p.Name))
	}
	c.Discard, c.MaxMsgs = jetstream.DiscardOld, -1
	if w.allowSchedules {
		c.Subjects = append(c.Subjects, delayedSubjectFilter(w.Name))
		c.AllowMsgSchedules, c.AllowRollup = true, true
	} else if w.MaxBacklog > 0 {
		c.Discard, c.MaxMsgs = jetstream.DiscardNew, w.MaxBacklog
	}
	setMaxAge(&c, w.MaxAge)
	c.AllowDirect = true
	c.RePublish = &jetstream.RePublish{
		Source: readySubject(w.Name, "*"), Destination: arrivedSubject(w.Name, "{{wildcard(1)}}"), HeadersOnly: true,
	}
	c.Metadata = w.ownerMetadata(found.Metadata, applied)
	return c
}

// duplicateWindow is how long the server knows a message again that is sent twice.
const duplicateWindow = 2 * time.Minute

// setMaxAge sets how long messages are kept; the server takes no longer memory than that.
func setMaxAge(c *jetstream.StreamConfig, age time.Duration) {
	c.MaxAge, c.Duplicates = age, duplicateWindow
	if age > 0 {
		c.Duplicates = min(age, duplicateWindow)
	}
}

// newStreamConfig is a stream that is not there yet.
func (w *desiredQueue) newStreamConfig() jetstream.StreamConfig {
	return w.streamConfig(jetstream.StreamConfig{
		Name: streamName(w.Name), Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage, Replicas: createdReplicas,
	}, "")
}

func (w *desiredQueue) deadStreamConfig(found jetstream.StreamConfig) jetstream.StreamConfig {
	c := found
	c.Subjects = []string{deadLetterSubject(w.Name, ">"), maxDeliveriesSubject(w.Name)}
	c.Discard, c.MaxMsgs = jetstream.DiscardOld, -1
	if w.DeadLetter.MaxEntries > 0 {
		c.MaxMsgs = w.DeadLetter.MaxEntries
	}
	setMaxAge(&c, w.DeadLetter.Retention)
	c.AllowDirect = true
	return c
}

func (w *desiredQueue) newDeadStreamConfig() jetstream.StreamConfig {
	return w.deadStreamConfig(jetstream.StreamConfig{
		Name: deadStreamName(w.Name), Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage, Replicas: createdReplicas,
	})
}

func (w *desiredQueue) ownerMetadata(found map[string]string, applied string) map[string]string {
	all := maps.Clone(found)
	if all == nil {
		all = map[string]string{}
	}
	all[metaOwner] = w.Owner.Name
	all[metaOwnerUID] = w.Owner.UID
	all[metaOwnerCreated] = w.Owner.CreationTime.UTC().Format(time.RFC3339Nano)
	if applied != "" {
		all[metaApplied] = applied
	}
	return all
}

// ownerFromMetadata is who a stream belongs to; nobody if it has no UID.
func ownerFromMetadata(metadata map[string]string) broker.QueueOwner {
	// One whose age somebody has written over is as old as can be, and keeps what it has.
	created, _ := time.Parse(time.RFC3339Nano, metadata[metaOwnerCreated])
	return broker.QueueOwner{UID: metadata[metaOwnerUID], Name: metadata[metaOwner], CreationTime: created}
}

// consumerConfigs are those of the queue's priorities, found as they are to be.
func (w *desiredQueue) consumerConfigs(found map[string]jetstream.ConsumerConfig) []jetstream.ConsumerConfig {
	parts := w.maxAckPendingByPriority()
	all := make([]jetstream.ConsumerConfig, 0, len(w.Priorities))
	for i, p := range w.Priorities {
		c, there := found[p.Name]
		if !there {
			c = jetstream.ConsumerConfig{Name: p.Name, Durable: p.Name, MaxWaiting: maxPullRequests}
		}
		c.FilterSubject = readySubject(w.Name, p.Name)
		c.AckPolicy = jetstream.AckExplicitPolicy
		c.AckWait = w.Lease
		c.BackOff = nil
		c.MaxDeliver = w.Retry.MaxAttempts + extraDeliveries
		c.MaxAckPending = parts[i]
		c.Metadata = maps.Clone(c.Metadata)
		if c.Metadata == nil {
			c.Metadata = map[string]string{}
		}
		c.Metadata[metaWeight] = strconv.Itoa(p.Weight)
		all = append(all, c)
	}
	return all
}

// maxAckPendingByPriority is how many messages of each priority may be with workers; -1: any number.
func (w *desiredQueue) maxAckPendingByPriority() []int {
	weights := make([]int, len(w.Priorities))
	parts := make([]int, len(w.Priorities))
	for i, p := range w.Priorities {
		weights[i], parts[i] = p.Weight, -1
	}
	if w.MaxInFlight > 0 {
		return broker.SplitByWeight(w.MaxInFlight, weights)
	}
	return parts
}

// indefinitePauseTime is a time that does not come.
var indefinitePauseTime = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// rateLimitRecord is what a queue's bucket says of its rate limit.
type rateLimitRecord struct {
	Limit int           `json:"limit"`
	Per   time.Duration `json:"per"`
	Burst int           `json:"burst"`
}

func (w *desiredQueue) rateLimitRecord() rateLimitRecord {
	if w.RateLimit == nil {
		return rateLimitRecord{}
	}
	return rateLimitRecord{w.RateLimit.Limit, w.RateLimit.Per, w.RateLimit.Burst}
}

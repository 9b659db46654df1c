package jetstream

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// The bucket with the states of jobs. It is apart from the bucket of the queue, because its entries are discarded when they
// are old or take too much space.

func jobsBucketName(queue string) string { return bucketName(queue) + "_jobs" }

func jobsStreamName(queue string) string { return "KV_" + jobsBucketName(queue) }

// jobsStreamConfig returns the found configuration with the settings of a bucket with the states of jobs.
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

// ensureResults creates, corrects or deletes the bucket with the states of jobs. A queue without one costs no request,
// unless its configuration has changed.
func (n *ensureOperation) ensureResults(ctx context.Context) error {
	if !n.Results.IsEnabled() {
		if n.isApplied || n.result.Created {
			return nil
		}
		if err := n.js.DeleteStream(ctx, jobsStreamName(n.Name)); err != nil && !isNotFound(err) {
			return err
		}
		return nil
	}
	stream, err := n.js.Stream(ctx, jobsStreamName(n.Name))
	if isNotFound(err) {
		n.reportMissingObject("bucket " + jobsBucketName(n.Name))
		stream, err = n.createStream(ctx, n.jobsStreamConfig(jetstream.StreamConfig{Name: jobsStreamName(n.Name)}))
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			stream, err = n.js.Stream(ctx, jobsStreamName(n.Name))
		}
	}
	if err != nil {
		return err
	}
	found, err := n.addStream(stream)
	if err != nil {
		return err
	}
	want := n.jobsStreamConfig(found)
	if n.reportDrift(jobsStreamDrift(&want, &found)) {
		return n.updateStream(ctx, len(n.streams)-1, want)
	}
	return nil
}

func jobsStreamDrift(want, found *jetstream.StreamConfig) []broker.SettingDifference {
	c := &settingComparison{object: "stream " + want.Name}
	c.compareSetting("subjects", sortedSubjects(want.Subjects), sortedSubjects(found.Subjects))
	c.compareSetting("max_msgs_per_subject", want.MaxMsgsPerSubject, found.MaxMsgsPerSubject)
	c.compareSetting("max_age", want.MaxAge, found.MaxAge)
	c.compareSetting("max_bytes", want.MaxBytes, found.MaxBytes)
	c.compareSetting("discard", want.Discard, found.Discard)
	c.compareSetting("allow_direct", want.AllowDirect, found.AllowDirect)
	return c.differences
}

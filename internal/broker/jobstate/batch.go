package jobstate

import (
	"encoding/json"
	"math/bits"
	"time"
)

// MaxBatchJobs bounds a batch, because each change stores which of its jobs have ended.
const MaxBatchJobs = 10_000

// Batch is the stored state of a batch: jobs, and a final job, which runs when they have ended.
type Batch struct {
	// Total is the number of jobs without the final job.
	Total int `json:"total"`
	// SentTime is when its producer began to send it, by the clock of the producer.
	SentTime time.Time `json:"sentTime,omitzero"`
	// Ended has a bit for each job that has ended, and Failed is the number of jobs that were dead or canceled.
	Ended  []byte `json:"ended"`
	Failed int    `json:"failed,omitempty"`
	// Complete: the broker stores all jobs and the final one.
	Complete bool `json:"complete,omitempty"`
	// FinalHolder identifies the message of the final job. A producer that repeats its call can store a second message.
	FinalHolder string `json:"finalHolder,omitempty"`
	// Done: the final job has ended.
	Done bool `json:"done,omitempty"`
}

// NewBatch returns a batch of which no job has ended.
func NewBatch(total int, sent time.Time) *Batch {
	return &Batch{Total: total, SentTime: sent.UTC(), Ended: make([]byte, bitmapBytes(total))}
}

const bitsPerByte = 8

func bitmapBytes(total int) int { return (total + bitsPerByte - 1) / bitsPerByte }

// DecodeBatch returns nil for an invalid batch: anyone with the permission may have written it.
func DecodeBatch(raw []byte) *Batch {
	b := &Batch{}
	if json.Unmarshal(raw, b) != nil || b.Total < 1 || b.Total > MaxBatchJobs || len(b.Ended) != bitmapBytes(b.Total) {
		return nil
	}
	return b
}

// HasEnded reports whether a job has ended.
func (b *Batch) HasEnded(member int) bool {
	return member >= 0 && member < b.Total && b.Ended[member/bitsPerByte]&(1<<(member%bitsPerByte)) != 0
}

// End records that a job has ended. It returns false if that was already recorded.
func (b *Batch) End(member int, failed bool) bool {
	if member < 0 || member >= b.Total || b.HasEnded(member) {
		return false
	}
	b.Ended[member/bitsPerByte] |= 1 << (member % bitsPerByte)
	if failed {
		b.Failed++
	}
	return true
}

// EndedCount is the number of jobs that have ended.
func (b *Batch) EndedCount() (ended int) {
	for _, part := range b.Ended {
		ended += bits.OnesCount8(part)
	}
	return ended
}

// FinalStart is the result of StartFinal.
type FinalStart int

// The results of StartFinal.
const (
	// FinalRuns: all other jobs have ended.
	FinalRuns FinalStart = iota
	// FinalWaits: other jobs have not ended.
	FinalWaits
	// FinalIsDuplicate: the batch has another message with its final job.
	FinalIsDuplicate
)

// StartFinal decides about a final job that a worker has received. A producer sends it after all others, so the batch is complete.
// Changed: the batch has to be stored before the decision is carried out.
func (b *Batch) StartFinal(holder string) (start FinalStart, changed bool) {
	if b.FinalHolder != "" && b.FinalHolder != holder {
		return FinalIsDuplicate, false
	}
	changed = b.FinalHolder == "" || !b.Complete
	b.FinalHolder, b.Complete = holder, true
	if b.EndedCount() < b.Total {
		return FinalWaits, changed
	}
	return FinalRuns, changed
}

// Bounds of the time between two deliveries of a job that waits for others.
const (
	minWaitDelay = time.Second
	maxWaitDelay = 30 * time.Second
	// waitDelayDivisor limits how much longer a job waits because of the delay to a tenth.
	waitDelayDivisor = 10
)

// WaitDelay is the delay until the redelivery of a job that has waited for others since a time.
func WaitDelay(since, now time.Time) time.Duration {
	return min(max(now.Sub(since)/waitDelayDivisor, minWaitDelay), maxWaitDelay)
}

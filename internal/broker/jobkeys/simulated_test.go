package jobkeys

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// simulateMany runs simulations until one fails: KEY_RUNS, or else some.
func simulateMany(t *testing.T, producers func(*simulation) []func()) {
	t.Helper()
	t.Parallel()
	for range testbuilder.NumberFromEnv(t, "KEY_RUNS", 1000) {
		seed := rand.Uint64()
		synctest.Test(t, func(t *testing.T) {
			s := newSimulation(t, seed)
			simulate(t, s, producers(s))
		})
		if t.Failed() {
			return
		}
	}
}

func TestAKeyIsNeverTakenTwiceNorForeverAndNoAcceptedJobIsLost(t *testing.T) {
	simulateMany(t, func(s *simulation) (producers []func()) {
		for number := range 3 {
			producers = append(producers, func() { s.produce(strconv.Itoa(number)) })
		}
		return producers
	})
}

func TestTheFinalJobOfEachBatchRunsFromOneMessageAfterAllOthers(t *testing.T) {
	simulateMany(t, func(s *simulation) (producers []func()) {
		for number := range 2 {
			producers = append(producers, func() { s.produceBatch(fmt.Sprintf("batch%d", number)) })
		}
		return producers
	})
}

// produceBatch repeats the call of a producer that fails or dies, or gives up.
func (s *simulation) produceBatch(id string) {
	total := 1 + s.intN(12)
	isComplete, isFinalSent := false, false
	for range 4 {
		producer := &process{simulation: s}
		surviveKill(func() { isComplete = producer.enqueueBatch(id, total) == nil })
		if isComplete || s.intN(3) == 0 {
			break
		}
		time.Sleep(time.Duration(s.intN(int(2*simWindow/time.Second))) * time.Second)
	}
	s.mu.Lock()
	for _, m := range s.messages {
		isFinalSent = isFinalSent || m.batch == id && m.member == broker.FinalMember
	}
	s.mu.Unlock()
	s.t.Cleanup(func() { s.requireBatch(id, isComplete, isFinalSent) })
}

// enqueueBatch does what EnqueueBatch of package client does.
func (p *process) enqueueBatch(id string, total int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	stored, err := OpenBatch(ctx, p, simQueue, id, total, time.Now())
	if err != nil || stored.Complete {
		return err
	}
	for number := range total + 1 {
		job := &broker.OutgoingJob{
			Queue: simQueue, ID: fmt.Sprintf("%s:%d", id, number), HasChosenID: true, BatchID: id, BatchMember: strconv.Itoa(number),
		}
		if number == total {
			job.ID, job.BatchMember, job.Holder = id, broker.FinalMember, fmt.Sprint(p.intN(1<<30))
		}
		if stored.HasEnded(number) {
			continue
		}
		if _, err := p.Send(ctx, job); err != nil {
			return err
		}
	}
	return CompleteBatch(ctx, p, simQueue, id)
}

// requireBatch checks a batch when nothing runs any more.
func (s *simulation) requireBatch(id string, isComplete, isFinalSent bool) {
	value := s.stored(batchKey(id)).value
	batch := jobstate.DecodeBatch(value)
	switch {
	case batch == nil:
		require.True(s.t, !isComplete && !isFinalSent, "%s is missing", id)
	case isFinalSent && (!batch.Done || !batch.Complete || batch.EndedCount() != batch.Total):
		s.t.Errorf("all jobs of %s are stored, and it has not ended: %s", id, value)
	case !isFinalSent && (batch.Done || batch.Complete):
		s.t.Errorf("%s has no final job, and has ended: %s", id, value)
	}
}

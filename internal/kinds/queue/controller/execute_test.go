package controller

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/kinds/queue"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestAPartOfARequeueEndsInTimeAndAfterTheDeadLettersThatAreLeft(t *testing.T) {
	oneASecond := func(_ context.Context, o broker.RequeueOptions) (number int, err error) {
		for ; o.Continues(number); number++ {
			o.Selects(&broker.DeadLetter{ID: o.After + uint64(number) + 1})
			time.Sleep(time.Second)
		}
		return number, nil
	}
	for left, want := range map[int64]queue.RequeuedPart{
		0: {}, 3: {Requeued: 3, Processed: 3, Last: 10}, 9: {Requeued: 5, Processed: 5, Last: 12, TimedOut: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), actionTimeout)
			defer cancel()
			require.Equal(t, want, require.Call(requeueDeadLetters(ctx, oneASecond, &queue.RequeueProgress{After: 7, Left: left})).Succeeds(t))
		})
	}
}

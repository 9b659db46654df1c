package poll

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestUntilEndsAsSoonAsTheConditionIsTrue(t *testing.T) {
	for _, takes := range []time.Duration{0, 3 * time.Millisecond, time.Second, 9 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			Until(t, "the time to pass", func() bool { return time.Since(start) >= takes })
			if late := time.Since(start) - takes; late > lastInterval {
				t.Errorf("a condition that is true after %v was noticed %v late", takes, late)
			}
		})
	}
}

func TestAWaitThatDoesNotSucceedReturnsTheLastErrorAfterTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		missing := errors.New("one worker is missing")
		start := time.Now()
		if err := UntilNil(t.Context(), func() error { return missing }); !errors.Is(err, missing) {
			t.Errorf("the error is %v", err)
		}
		if took := time.Since(start); took < limit || took > limit+lastInterval {
			t.Errorf("the wait took %v", took)
		}
	})
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		missing := errors.New("one worker is missing")
		if err := UntilNil(ctx, func() error { return missing }); !errors.Is(err, missing) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error is %v", err)
		}
	})
}

package kube

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestLimitOfOneNamespaceTakesNothingFromAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := NewNamespaceLimiter(2, 20)
		allowed := func(namespace string, events int) (count int) {
			for range events {
				if limiter.Allow(namespace) {
					count++
				}
			}
			return count
		}
		if got := allowed("busy", 1000); got != 20 {
			t.Errorf("%d events of a burst, want 20", got)
		}
		if got := allowed("quiet", 10); got != 10 {
			t.Errorf("%d of 10 events of another namespace", got)
		}
		time.Sleep(5 * time.Second)
		if got := allowed("busy", 1000); got != 10 {
			t.Errorf("%d events after 5 s, want 10", got)
		}
	})
}

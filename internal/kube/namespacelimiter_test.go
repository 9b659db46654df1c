package kube

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/yardmaster/yardmaster/test/require"
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
		require.Equal(t, 20, allowed("busy", 1000))
		require.Equal(t, 10, allowed("quiet", 10))
		time.Sleep(5 * time.Second)
		require.Equal(t, 10, allowed("busy", 1000))
	})
}

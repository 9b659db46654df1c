// Package fuzz runs the operator, as a process of its own with its webhooks, against objects of all
// kinds that are generated from the schemas of the CustomResourceDefinitions. Most objects are
// valid, and some contain hostile values. It needs the KUBECONFIG of a real API server, and no other
// operator may run there.
//
//	FUZZ_SEED=7            repeats the objects of an earlier run
//	SOAK_DURATION=30m      repeats rounds for this time (make soak)
package fuzz

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testenv"
)

const (
	namespaces = 4
	// minAccepted is the number of objects of each kind that the API server accepts in a round.
	minAccepted = 200
	// settleTime is how long the operator has to reconcile all objects of a round. Then nothing
	// changes for quietTime, in which it must not repeat messages.
	settleTime, quietTime = 20 * time.Second, time.Minute
	// maxMemory is the memory limit of the operator's container.
	maxMemory = 256 << 20
)

// In each round, four namespaces get objects of all kinds at the same time. The operator must not
// panic, restart, or repeat errors about objects that do not change, and all namespaces can be
// deleted.
func TestFuzzedObjectsDoNotDisturbTheOperator(t *testing.T) {
	env := newFuzzTest(t)
	duration := durationFromEnv(t)
	seed := seedFromEnv(t, duration)
	env.startOperator()
	end := time.Now().Add(duration)
	for round := uint64(0); round == 0 || time.Now().Before(end); round++ {
		env.runRound(seed, round)
		if t.Failed() {
			return
		}
	}
}

func (env *fuzzTest) runRound(seed, round uint64) {
	env.t.Helper()
	env.startRound()
	group, ctx := errgroup.WithContext(env.t.Context())
	for i := range namespaces {
		ns := namespaceName(i)
		env.createNamespace(ns, i)
		g := generator{rand.New(rand.NewPCG(seed, round*namespaces+uint64(i)))}
		group.Go(func() error { return env.changeObjects(ctx, g, ns) })
	}
	require.NoError(env.t, group.Wait())
	env.checkAccepted(round)
	env.sleep(settleTime)
	env.checkQuiet()
	for i := range namespaces {
		testenv.SaveObjectsOfFailedTest(env.t.Context(), env.t, env, namespaceName(i))
	}
	env.deleteNamespaces()
	env.operator.checkRunning(env.t)
	env.operator.checkLog(env.t, env.changes)
}

func namespaceName(i int) string { return fmt.Sprintf("fuzz-%d", i) }

// seedFromEnv returns the same seed for each single round, so that a change cannot fail because of
// an object that it has nothing to do with, and a new one for each longer run.
func seedFromEnv(t *testing.T, duration time.Duration) uint64 {
	t.Helper()
	text := os.Getenv("FUZZ_SEED")
	switch {
	case text != "":
	case duration == 0:
		text = "1"
	default:
		text = strconv.FormatInt(time.Now().UnixNano(), 10)
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err)
	t.Logf("FUZZ_SEED=%d", seed)
	return seed
}

func durationFromEnv(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("SOAK_DURATION")
	if text == "" {
		return 0
	}
	duration, err := time.ParseDuration(text)
	require.NoError(t, err)
	return duration
}

// sleep waits while nothing is changed.
func (env *fuzzTest) sleep(d time.Duration) {
	env.t.Helper()
	select {
	case <-time.After(d):
	case <-env.t.Context().Done():
		env.t.Fatal(context.Cause(env.t.Context()))
	}
}

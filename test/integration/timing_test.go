package integration

import "testing"

// TestTiming runs tests that measure time, or wait to see that nothing happens. They leave the processors idle, so they
// run beside each other, but not beside the other parallel tests, which keep the processors busy. The name of this file
// makes them run late, when the tests of package crash, which make test-integration starts at the same time, have ended.
func TestTiming(t *testing.T) {
	for title, run := range map[string]func(*testing.T){
		"only busy Pods are protected from the removal of their node":                protectsOnlyBusyPods,
		"a pool scales to zero while retries wait, and back when they are due":       scalesToZeroWhileRetriesWait,
		"a pool scales from zero on the first message, and back":                     scalesFromZeroAndBack,
		"a source that does not answer delays only its own pools":                    delaysOnlyPoolsOfASource,
		"the loss of a broker is reported within 15 s, and its recovery within 10 s": reportsBrokerLossAndRecovery,
		"an idle queue causes no writes":                                             writesNothingForAnIdleQueue,
		"of an unchanged pool, only the status is written":                           writesOnlyStatusOfAnUnchangedPool,
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			run(t)
		})
	}
}

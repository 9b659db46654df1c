package broker

import (
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
)

// Only a message that is lost alone may be the cause of a loss, and only failures and such losses use up attempts.
func TestOnlyLossesAloneUseUpAttempts(t *testing.T) {
	lost := func(alone ...bool) (h History) {
		for _, one := range alone {
			h = h.AfterStart(one)
		}
		return h
	}
	waited := History{Lost: 3}
	for title, row := range map[string]struct {
		history History
		attempt int
		suspect bool
	}{
		"new":                                 {History{}, 1, false},
		"failed and released":                 {History{}.AfterFailure().AfterFailure().AfterRelease(), 3, false},
		"lost while it waited in its process": {waited, 1, false},
		"started after that, and lost":        {waited.AfterStart(false), 1, true},
		"lost beside others, and failed":      {lost(false, false).AfterFailure(), 2, true},
		"lost alone":                          {lost(false, false, true), 4, true},
		"lost alone, and failed":              {lost(false, true).AfterFailure(), 4, true},
	} {
		attempt, isSuspect := row.history.Attempt(), row.history.IsSuspect()
		require.True(t, attempt == row.attempt && isSuspect == row.suspect, "%s: attempt %d, suspect %t", title, attempt, isSuspect)
	}
}

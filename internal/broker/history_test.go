package broker

import "testing"

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
		t.Run(title, func(t *testing.T) {
			if got := row.history.Attempt(); got != row.attempt || row.history.IsSuspect() != row.suspect {
				t.Errorf("attempt %d, suspect %t, want %d and %t", got, row.history.IsSuspect(), row.attempt, row.suspect)
			}
		})
	}
}

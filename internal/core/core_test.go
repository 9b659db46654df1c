package core

import (
	"testing"
	"time"
)

func TestEarliestWaitIgnoresThoseThatAreNever(t *testing.T) {
	tests := map[string]struct {
		waits []time.Duration
		want  time.Duration
	}{
		"none":              {nil, 0},
		"only never":        {[]time.Duration{0, 0}, 0},
		"never and one":     {[]time.Duration{0, time.Hour, 0}, time.Hour},
		"the shortest":      {[]time.Duration{time.Hour, time.Second, time.Minute}, time.Second},
		"already over":      {[]time.Duration{time.Second, -time.Second}, -time.Second},
		"the same twice":    {[]time.Duration{time.Second, time.Second}, time.Second},
		"the first of many": {[]time.Duration{time.Second, time.Minute, 0}, time.Second},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			if got := Earliest(test.waits...); got != test.want {
				t.Errorf("earliest of %v is %s, want %s", test.waits, got, test.want)
			}
		})
	}
}

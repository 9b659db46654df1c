package core

import (
	"testing"
	"time"
)

func TestEarliestIgnoresZero(t *testing.T) {
	tests := map[string]struct {
		waits []time.Duration
		want  time.Duration
	}{
		"none":                        {nil, 0},
		"only zeros":                  {[]time.Duration{0, 0}, 0},
		"one wait and zeros":          {[]time.Duration{0, time.Hour, 0}, time.Hour},
		"the shortest of three waits": {[]time.Duration{time.Hour, time.Second, time.Minute}, time.Second},
		"a negative wait":             {[]time.Duration{time.Second, -time.Second}, -time.Second},
		"two equal waits":             {[]time.Duration{time.Second, time.Second}, time.Second},
		"the first wait":              {[]time.Duration{time.Second, time.Minute, 0}, time.Second},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			if got := Earliest(test.waits...); got != test.want {
				t.Errorf("earliest of %v is %s, want %s", test.waits, got, test.want)
			}
		})
	}
}

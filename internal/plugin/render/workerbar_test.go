package render

import (
	"testing"
)

func TestASparkLineIsAsHighAsItsFigures(t *testing.T) {
	for title, row := range map[string]struct {
		figures []int64
		want    string
	}{
		"nothing yet":                         {nil, ""},
		"nothing waits":                       {[]int64{0, 0}, "▁▁"},
		"the greatest is as high as can be":   {[]int64{0, 50, 100}, "▁▄█"},
		"what is little is not nothing":       {[]int64{1, 1000}, "▂█"},
		"as many as there can be, no more":    {[]int64{1 << 62, 1 << 62}, "██"},
		"what cannot be is taken for nothing": {[]int64{-5, 7}, "▁█"},
	} {
		t.Run(title, func(t *testing.T) {
			if got := Sparkline(row.figures); got != row.want {
				t.Errorf("line %q, want %q", got, row.want)
			}
		})
	}
}

func TestABarShowsWorkersThatAreReadyAndThoseToCome(t *testing.T) {
	for title, row := range map[string]struct {
		ready, wanted, room int32
		want                string
	}{
		"none":                               {0, 0, 10, "············"},
		"all there may be":                   {10, 10, 10, "████████████"},
		"half, and as many to come":          {3, 6, 12, "███▒▒▒······"},
		"one of very many":                   {1, 1, 10_000, "█···········"},
		"one to come is seen, too":           {100, 101, 1000, "█▒··········"},
		"more than there may be, after all":  {6, 3, 3, "████████████"},
		"room for none":                      {0, 0, 0, "············"},
		"as many as there can be":            {1 << 30, 1 << 30, 1<<31 - 1, "██████······"},
		"what goes is no more to be counted": {4, 2, 12, "████········"},
	} {
		t.Run(title, func(t *testing.T) {
			if got := WorkerBar(row.ready, row.wanted, row.room); got != row.want {
				t.Errorf("bar %q, want %q", got, row.want)
			}
		})
	}
}

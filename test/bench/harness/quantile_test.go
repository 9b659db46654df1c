package harness

import "testing"

func TestQuantileIsTheNearestRank(t *testing.T) {
	twenty := make([]int, 20)
	for i := range twenty {
		twenty[i] = 20 - i
	}
	for title, test := range map[string]struct {
		all  []int
		q    float64
		want int
	}{
		"median":                       {twenty, 0.5, 10},
		"99th percentile of 20 values": {twenty, 0.99, 20},
		"100th percentile":             {twenty, 1, 20},
		"0th percentile":               {twenty, 0, 1},
		"one value":                    {[]int{7}, 0.5, 7},
		"no values":                    {nil, 0.5, 0},
	} {
		t.Run(title, func(t *testing.T) {
			if got := Quantile(test.all, test.q); got != test.want {
				t.Errorf("quantile %d, want %d", got, test.want)
			}
		})
	}
}

func TestMedianIsTheMiddleValue(t *testing.T) {
	for title, test := range map[string]struct {
		all  []float64
		want float64
	}{
		"odd number of values":  {[]float64{9, 1, 2}, 2},
		"even number of values": {[]float64{9, 1, 2, 4}, 3},
		"no values":             {nil, 0},
	} {
		t.Run(title, func(t *testing.T) {
			if got := Median(test.all); got != test.want {
				t.Errorf("median %v, want %v", got, test.want)
			}
		})
	}
}

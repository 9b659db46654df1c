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
		"half are not above the median":               {twenty, 0.5, 10},
		"of twenty, the 99th percentile is the worst": {twenty, 0.99, 20},
		"the worst is the greatest":                   {twenty, 1, 20},
		"the best is the smallest":                    {twenty, 0, 1},
		"of one it is that one":                       {[]int{7}, 0.5, 7},
		"of none it is nothing":                       {nil, 0.5, 0},
	} {
		t.Run(title, func(t *testing.T) {
			if got := Quantile(test.all, test.q); got != test.want {
				t.Errorf("%d, want %d", got, test.want)
			}
		})
	}
}

func TestMedianIsTheMiddleValue(t *testing.T) {
	for title, test := range map[string]struct {
		all  []float64
		want float64
	}{
		"of three it is the one in the middle": {[]float64{9, 1, 2}, 2},
		"of four it is between two":            {[]float64{9, 1, 2, 4}, 3},
		"of none it is nothing":                {nil, 0},
	} {
		t.Run(title, func(t *testing.T) {
			if got := Median(test.all); got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

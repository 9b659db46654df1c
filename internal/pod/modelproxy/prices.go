package modelproxy

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"

	"sigs.k8s.io/yaml"
)

//go:embed prices.yaml
var defaultPrices []byte

// Price of a model in US dollars per million tokens, which are millionths of a dollar per token.
type Price struct {
	Input     float64 `json:"input"`
	CacheRead float64 `json:"cacheRead,omitempty"`
	// CacheWrite and CacheWriteHour are the prices of tokens that are written to the cache; the input's if they are not set.
	CacheWrite     float64 `json:"cacheWrite,omitempty"`
	CacheWriteHour float64 `json:"cacheWriteHour,omitempty"`
	Output         float64 `json:"output"`
	// Search is the price of one search in the web, in dollars.
	Search float64 `json:"search,omitempty"`
	// MaxInputTokens and MaxOutputTokens are what one request of the model has at most.
	MaxInputTokens  int64 `json:"maxInputTokens"`
	MaxOutputTokens int64 `json:"maxOutputTokens"`
	// LongPrompt multiplies the prices of requests whose prompt has more tokens.
	LongPrompt *LongPrompt `json:"longPrompt,omitempty"`
}

// LongPrompt has the factors by which requests with a long prompt are more expensive.
type LongPrompt struct {
	Tokens int64   `json:"tokens"`
	Input  float64 `json:"input"`
	Output float64 `json:"output"`
}

// Prices of models, by name.
type Prices map[string]Price

// ParsePrices returns the prices in a file, YAML or JSON. They are added to the built-in prices, unless the file says replace: true.
func ParsePrices(raw []byte) (Prices, error) {
	var file struct {
		Replace bool   `json:"replace"`
		Models  Prices `json:"models"`
	}
	if err := yaml.UnmarshalStrict(raw, &file); err != nil {
		return nil, err
	}
	var errs []error
	for _, model := range slices.Sorted(maps.Keys(file.Models)) {
		p := file.Models[model]
		numbers := []float64{p.Input, p.CacheRead, p.CacheWrite, p.CacheWriteHour, p.Output, p.Search}
		const maxPrice, maxTokens = 1e6, 1e8
		if slices.Min(numbers) < 0 || slices.Max(numbers) > maxPrice || p.Input+p.Output == 0 {
			errs = append(errs, fmt.Errorf("a price of %s is negative or too high, or the model has none", model))
		}
		if long := p.LongPrompt; long != nil && (min(long.Input, long.Output) < 1 || max(long.Input, long.Output) > maxPrice || long.Tokens < 0) {
			errs = append(errs, fmt.Errorf("longPrompt of %s needs factors of at least 1", model))
		}
		if min(p.MaxInputTokens, p.MaxOutputTokens) <= 0 || max(p.MaxInputTokens, p.MaxOutputTokens) > maxTokens {
			errs = append(errs, fmt.Errorf("%s must have maxInputTokens and maxOutputTokens", model))
		}
	}
	if err := errors.Join(errs...); err != nil || file.Replace || bytes.Equal(raw, defaultPrices) {
		return file.Models, err
	}
	prices, err := ParsePrices(defaultPrices)
	if err == nil {
		maps.Copy(prices, file.Models)
	}
	return prices, err
}

// BuiltInPrices returns the prices that apply without a file.
func BuiltInPrices() (Prices, error) { return ParsePrices(defaultPrices) }

// datedModel matches the date at the end of a model's name. Other ends, such as -pro, are other models.
var datedModel = regexp.MustCompile(`^(.+?)(-\d{8}|-\d{4}-\d{2}-\d{2}|-latest)$`)

func (p Prices) find(model string) (Price, bool) {
	price, found := p[model]
	if match := datedModel.FindStringSubmatch(model); !found && match != nil {
		price, found = p[match[1]]
	}
	return price, found
}

// Usage is what a response consists of. Input does not include the tokens of the cache.
type Usage struct {
	Input, CacheRead, CacheWrite, CacheWriteHour, Output, Searches int64
}

func (u *Usage) prompt() int64 { return u.Input + u.CacheRead + u.CacheWrite + u.CacheWriteHour }

// isValid refuses numbers that no response has.
func (u *Usage) isValid() bool {
	const most = 1e9
	numbers := []int64{u.Input, u.CacheRead, u.CacheWrite, u.CacheWriteHour, u.Output, u.Searches}
	return slices.Min(numbers) >= 0 && slices.Max(numbers) <= most
}

// cost returns the millionths of a dollar that a response costs, rounded up.
func (p *Price) cost(u Usage) int64 {
	writes := func(price float64) float64 {
		if price == 0 {
			return p.Input
		}
		return price
	}
	hour := max(writes(p.CacheWriteHour), writes(p.CacheWrite))
	input := float64(u.Input)*p.Input + float64(u.CacheRead)*p.CacheRead + float64(u.CacheWrite)*writes(p.CacheWrite) + float64(u.CacheWriteHour)*hour
	output := float64(u.Output) * p.Output
	if long := p.LongPrompt; long != nil && u.prompt() > long.Tokens {
		input, output = input*long.Input, output*long.Output
	}
	const tolerance = 1e-6 // of floating-point numbers
	return int64(math.Ceil(input + output + float64(u.Searches)*p.Search*microsPerDollar - tolerance))
}

// mostExpensive returns what a request costs at most: each token of its prompt may be written to the cache.
func (p *Price) mostExpensive(tokens, output int64) int64 {
	dearest := *p
	dearest.Input = max(p.Input, p.CacheRead, p.CacheWrite, p.CacheWriteHour)
	return dearest.cost(Usage{Input: tokens, Output: output})
}

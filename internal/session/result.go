package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

const (
	// maxResultBytes is what the kubelet takes of a termination message.
	maxResultBytes        = 4096
	maxSDKSessionIDLength = 256
	// maxCostDollars is more than any session costs, and small enough to be summed without loss.
	maxCostDollars = 1e9
	// microsPerDollar are the millionths of a dollar that costs are counted in.
	microsPerDollar = 1e6
)

// readResult keeps what the runner left, if it has ended. What cannot be read is said in a
// condition, and changes no outcome.
func (d *evaluation) readResult() {
	exit := d.exit()
	if exit == nil || strings.TrimSpace(exit.Message) == "" {
		return
	}
	result, err := ParseResult(exit.Message)
	if err != nil {
		d.set(v1alpha1.ConditionResultValid, metav1.ConditionFalse, v1alpha1.ReasonResultMalformed, "attempt %d at run %d: %s",
			d.status.Attempt, d.status.Run, err)
		return
	}
	d.set(v1alpha1.ConditionResultValid, metav1.ConditionTrue, v1alpha1.ReasonResultParsed, "")
	result.Run, result.Attempt = d.status.Run, d.status.Attempt
	d.status.Result = result
	if result.SDKSessionID != "" {
		d.status.SDKSessionID = result.SDKSessionID
	}
}

// ParseResult reads what a runner leaves: one JSON object. Fields that are not known are
// left out: a runner may have more to say than this version can hear.
func ParseResult(message string) (*v1alpha1.SessionResult, error) {
	if len(message) > maxResultBytes {
		return nil, fmt.Errorf("the result has %d bytes, which is more than %d", len(message), maxResultBytes)
	}
	var raw struct {
		Summary      string          `json:"summary"`
		Usage        json.RawMessage `json:"usage"`
		CostUSD      *json.Number    `json:"costUSD"`
		SDKSessionID string          `json:"sdkSessionId"` //nolint:tagliatelle // The name that is known.
	}
	decoder := json.NewDecoder(strings.NewReader(message))
	if err := decoder.Decode(&raw); err != nil {
		if len(message) == maxResultBytes {
			return nil, fmt.Errorf("the result is cut off at %d bytes: %w", maxResultBytes, err)
		}
		return nil, fmt.Errorf("the result is no JSON object of the known form: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the result's JSON object")
	}
	result := &v1alpha1.SessionResult{Summary: raw.Summary, SDKSessionID: raw.SDKSessionID}
	if utf8.RuneCountInString(result.SDKSessionID) > maxSDKSessionIDLength {
		return nil, fmt.Errorf("sdkSessionId has more than %d characters", maxSDKSessionIDLength)
	}
	if usage := bytes.TrimSpace(raw.Usage); len(usage) > 0 && !bytes.Equal(usage, []byte("null")) {
		if usage[0] != '{' {
			return nil, errors.New("usage is no JSON object")
		}
		result.Usage = &apiextensionsv1.JSON{Raw: usage}
	}
	if raw.CostUSD != nil {
		cost, err := parseCost(raw.CostUSD.String())
		if err != nil {
			return nil, err
		}
		result.CostUSD = &cost
	}
	return result, nil
}

// parseCost takes a number of dollars, and rounds it to millionths.
func parseCost(text string) (v1alpha1.Number, error) {
	cost, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(cost) || cost < 0 || cost > maxCostDollars {
		return "", fmt.Errorf("costUSD is %s, and must be from 0 to %.0f", text, float64(maxCostDollars))
	}
	return formatDollars(int64(math.Round(cost * microsPerDollar))), nil
}

// sumCosts of costs, of which each may be unknown.
func sumCosts(a, b *v1alpha1.Number) *v1alpha1.Number {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return new(formatDollars(parseMicroDollars(*a) + parseMicroDollars(*b)))
}

// parseMicroDollars is the inverse of dollars. Whoever edits a status gets 0 for what is no cost.
func parseMicroDollars(n v1alpha1.Number) int64 {
	cost, err := strconv.ParseFloat(string(n), 64)
	if err != nil || math.IsNaN(cost) || math.Abs(cost) > math.MaxInt64/microsPerDollar/2 {
		return 0
	}
	return int64(math.Round(cost * microsPerDollar))
}

func formatDollars(amount int64) v1alpha1.Number {
	text := fmt.Sprintf("%d.%06d", amount/microsPerDollar, amount%microsPerDollar)
	return v1alpha1.Number(strings.TrimSuffix(strings.TrimRight(text, "0"), "."))
}

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/yardmaster/yardmaster/internal/gateway"
	"github.com/yardmaster/yardmaster/internal/operator"
)

// The chart refuses names of flags that do not exist, so that a misspelled flag is not deployed.
func TestTheChartAcceptsTheFlagsOfTheProgramsAndNoOthers(t *testing.T) {
	type flagValues struct {
		PropertyNames struct {
			Enum []string `json:"enum"`
		} `json:"propertyNames"`
	}
	var schema struct {
		Properties struct {
			Flags   flagValues `json:"flags"`
			Gateway struct {
				Properties struct {
					Flags flagValues `json:"flags"`
				} `json:"properties"`
			} `json:"gateway"`
		} `json:"properties"`
	}
	raw, err := os.ReadFile("../../charts/yardmaster/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &schema); err != nil {
		t.Fatal(err)
	}
	var usage bytes.Buffer
	if _, err := operator.ParseFlags([]string{"-h"}, nil, &usage); !errors.Is(err, flag.ErrHelp) {
		t.Fatal(err)
	}
	compareFlags(t, "flags", schema.Properties.Flags.PropertyNames.Enum, usage.String())
	usage.Reset()
	if _, err := gateway.ParseFlags([]string{"-h"}, nil, &usage); !errors.Is(err, flag.ErrHelp) {
		t.Fatal(err)
	}
	compareFlags(t, "gateway.flags", schema.Properties.Gateway.Properties.Flags.PropertyNames.Enum, usage.String())
}

var usageFlag = regexp.MustCompile(`(?m)^ {2}-([a-z0-9-]+)`)

func compareFlags(t *testing.T, value string, accepted []string, usage string) {
	t.Helper()
	var flags []string
	for _, match := range usageFlag.FindAllStringSubmatch(usage, -1) {
		if match[1] != "version" {
			flags = append(flags, match[1])
		}
	}
	slices.Sort(flags)
	if diff := cmp.Diff(flags, accepted); diff != "" {
		t.Errorf("propertyNames of %s in values.schema.json (-flags of the program, +names that the chart accepts):\n%s", value, diff)
	}
}

package plugin

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
)

// durationValue is the value of a flag that is not negative and may count days, such as 7d.
type durationValue struct{ value *time.Duration }

// addDurationFlag adds a flag for a duration, whose default is the present value.
func addDurationFlag(command *cobra.Command, value *time.Duration, name, usage string) {
	command.Flags().Var(durationValue{value}, name, usage)
}

// String implements pflag.Value. 0 is empty: help texts then state no default.
func (d durationValue) String() string {
	if d.value == nil || *d.value == 0 {
		return ""
	}
	return jobreport.FormatDuration(*d.value)
}

// Set implements pflag.Value.
func (d durationValue) Set(text string) error {
	value, err := jobreport.ParseDuration(text)
	if err == nil {
		*d.value = value
	}
	return err
}

// Type implements pflag.Value. It names the value in help texts.
func (durationValue) Type() string { return "duration" }

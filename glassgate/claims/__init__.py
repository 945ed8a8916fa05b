"""What tutorials claim of recurrent networks, measured: who remembers, what two directions and fused products bring."""

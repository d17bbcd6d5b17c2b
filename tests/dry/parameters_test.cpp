// Where addresses are among a kernel's parameters: the sizes are those of PyTorch 2.11's kernels on a card of compute capability 8.9.
#include "dry/parameters.h"

#include <gtest/gtest.h>

#include <cstring>

namespace {

using namespace headroom::dry;

TEST(DryParameters, OldAddressesInTablesDoNotCount) {
  const Holds elementwise = holds_of("_ZN2at6native18elementwise_kernelILi128ELi2EZNS0_22gpu_kernel_impl_nocast");
  EXPECT_EQ(elementwise, Holds::elementwise);
  EXPECT_EQ(addresses_within(elementwise, 648), (ByteRange{608, 632})) << "three operands";
  EXPECT_EQ(addresses_within(elementwise, 536), (ByteRange{504, 520})) << "two";
  EXPECT_EQ(addresses_within(elementwise, 4), (ByteRange{0, 4})) << "a count of elements";
  const Holds reduction = holds_of("_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIf");
  EXPECT_EQ(reduction, Holds::reduction);
  EXPECT_EQ(addresses_within(reduction, 1048), (ByteRange{984, 1000})) << "what is read, and the first result";
  const Holds described =
      holds_of("_ZN2at6native20indexSelectSmallIndexIfljLi2ELi2ELin2EEEvNS_4cuda6detail10TensorInfoIT_T1_EES6_NS4_IKT0_S5_EE");
  EXPECT_EQ(described, Holds::tensor_info);
  EXPECT_EQ(addresses_within(described, 216), (ByteRange{0, 8})) << "indices of 32 bits";
  EXPECT_EQ(addresses_within(described, 416), (ByteRange{0, 8})) << "of 64";
  EXPECT_EQ(addresses_within(described, 16), (ByteRange{0, 16})) << "no tensor's description";
  EXPECT_EQ(holds_of("_ZN2at6native29vectorized_elementwise_kernelILi4E"), Holds::anywhere);
  EXPECT_EQ(addresses_within(Holds::anywhere, 24), (ByteRange{0, 24}));
}

// The layouts of PyTorch 2.11, in ATen/native/cuda/MultiTensorApply.cuh.
TEST(DryParameters, ATableOfTensorsHasThoseUpToItsLastBlocks) {
  const Lists one =
      lists_of("_ZN2at6native55_GLOBAL__N_25multi_tensor_apply_kernelINS1_18TensorListMetadataILi1EEENS1_21BinaryOpScalarFunctorIf");
  EXPECT_EQ(one, (Lists{1, 110, 0, 4}));
  EXPECT_EQ(one.bytes(), 8 * 110 * 2 + 320 + 4 * 320 + 8u) << "a multiple of 8";
  EXPECT_EQ(lists_of("25multi_tensor_apply_kernelINS1_18TensorListMetadataILi3EE").bytes(), 8 * 48 * 4 + 1600 + 8u);
  EXPECT_EQ(lists_of("25multi_tensor_apply_kernelINS1_28TensorListScalarListMetadataIfLi1EE").bytes(), 96 * (8 + 8 + 4) + 1600u);
  EXPECT_EQ(lists_of("25multi_tensor_apply_kernelINS1_28TensorListScalarListMetadataIdLi2EE").bytes(), 64 * (8 + 8 + 8 + 8) + 1600u);
  EXPECT_EQ(lists_of("25multi_tensor_apply_kernelINS1_32FusedOptimizerTensorListMetadataILi4EE").bytes(), 36 * (5 * 8 + 8) + 1600 + 8u);
  EXPECT_EQ(lists_of("25multi_tensor_apply_kernelI18TensorListMetadataILi9EE"), Lists{});
  EXPECT_EQ(lists_of("_ZN2at6native29vectorized_elementwise_kernelILi4E"), Lists{});
  struct {
    const void* addresses[1][110];
    std::int64_t sizes[110];
    unsigned char tensor_of_block[320];
    int piece_of_block[320];
    int start;
  } table;
  static_assert(sizeof table == 8 * 110 * 2 + 320 + 4 * 320 + 8);
  std::memset(&table, 77, sizeof table);  // what was on the stack
  table.tensor_of_block[0] = table.tensor_of_block[1] = 0, table.tensor_of_block[2] = 1;
  EXPECT_EQ(tensors_of(one, &table, 3), 2u);
  EXPECT_EQ(tensors_of(one, &table, 2), 1u);
  EXPECT_EQ(tensors_of(one, &table, 4), 78u);
  EXPECT_EQ(tensors_of(one, &table, 321), 110u) << "of another layout: all that there is room for";
}

TEST(DryParameters, AKernelOfAnotherLibraryWritesThroughItsAddressesThatAreNotConstant) {
  EXPECT_EQ(written_by("_ZN6vision3ops12_GLOBAL__N_121gather_keep_from_maskEPbPKyi"), (Written{3, 0b001})) << "torchvision's";
  EXPECT_EQ(written_by("_ZN6vision3ops12_GLOBAL__N_115nms_kernel_implIfEEvidPKT_Py"), (Written{4, 0b1000})) << "a template";
  EXPECT_EQ(written_by("_ZN3own4copyEPKfS1_Pfi"), (Written{4, 0b100})) << "a type that was there before";
  EXPECT_EQ(written_by("_ZN2at6native13reduce_kernelILi512EEvPf"), Written{}) << "PyTorch's own";
  EXPECT_EQ(written_by("_ZN3own3addE6float4Pf"), Written{}) << "a structure";
  EXPECT_EQ(written_by("triton_poi_fused_add_0"), Written{});
}

}  // namespace
